"""Traces of small Chat sessions as a recorder would have left them, and a script that answers like a Chat server."""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from golden_server import Script, Visitor

from storage.records import Arrival, Exchange, ExchangeRow, Request, Response
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire

MS = 1_000_000
START_NS = 1_760_000_000_000_000_000


def answer(number: int, *, tokens: int = 4, cached: int | None = 8) -> list[bytes]:
    """The events of one answer: a role, tokens, usage, the end."""
    deltas = [{"role": "assistant", "content": ""}, *[{"content": f"tok{i} "} for i in range(tokens)]]
    chunks = [{"id": f"c{number}", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"id": f"c{number}", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage: dict[str, object] = {"prompt_tokens": 100, "completion_tokens": tokens}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    chunks.append({"id": f"c{number}", "choices": [], "usage": usage})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def body(session: int, turn: int) -> bytes:
    """The request of a turn: every turn adds an answer and a question."""
    messages = [{"role": "system", "content": f"You are agent {session}."}, {"role": "user", "content": "Start."}]
    for earlier in range(1, turn):
        messages += [{"role": "assistant", "content": "tok0 tok1 tok2 tok3 "}, {"role": "user", "content": f"Go on {earlier}."}]
    return json.dumps({"model": "gpt-5", "stream": True, "messages": messages}).encode()


def exchange(session: int, turn: int, *, gap_ms: int = 20) -> Exchange:
    """One recorded turn: 50 ms long, `gap_ms` after the one before it."""
    headers = (
        ("content-type", "application/json"),
        ("authorization", "***:0123456789ab"),
        ("user-agent", "opencode/1.18.33"),
        ("x-session-id", f"ses_{session}"),
        ("x-session-affinity", f"ses_{session}"),
    )
    arrivals = tuple(Arrival((10 + 4 * place) * MS, event) for place, event in enumerate(answer(100 * session + turn)))
    return Exchange(
        started_ns=START_NS + (turn - 1) * (50 + gap_ms) * MS,
        request=Request(method="POST", url="https://api.example.com/v1/chat/completions?x=1", headers=headers, body=body(session, turn)),
        sent_ns=MS,
        response=Response(status=200, headers=(("content-type", "text/event-stream"),), headers_at_ns=5 * MS, arrivals=arrivals),
        ended_ns=50 * MS,
    )


def write(path: Path, *, sessions: int = 2, turns: int = 3) -> None:
    """A trace of `sessions` sessions of `turns` turns, read."""
    write_turns(path, [(session, turn) for session in range(1, sessions + 1) for turn in range(1, turns + 1)])


def write_turns(path: Path, which: Iterable[tuple[int, int]]) -> None:
    """A trace of these turns, each by its session and number, read."""
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, wire.split)
        for session, turn in which:
            writer.put(exchange(session, turn))
        writer.close()
        reading.catch_up(trace)


def chatting(*, cached: int | None = 8, wait_s: float = 0.0, tokens: int = 4) -> Script:
    """Answers every request with a stream."""
    served = iter(range(1_000_000))

    def script(visitor: Visitor) -> None:
        visitor.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: secret=1\r\nTransfer-Encoding: chunked\r\n\r\n")
        time.sleep(wait_s)
        for event in answer(next(served), cached=cached, tokens=tokens):
            visitor.say(b"%x\r\n%s\r\n" % (len(event), event))
        visitor.say(b"0\r\n\r\n")

    return script


def refusing(status: bytes) -> Script:
    """Answers every request with an error."""

    def script(visitor: Visitor) -> None:
        said = b'{"error":{"message":"no such luck","type":"error"}}'
        visitor.say(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(said), said))

    return script


def by_source(rows: list[ExchangeRow]) -> dict[tuple[int, int], ExchangeRow]:
    """Replayed rows by (recorded exchange, copy)."""
    return {(row.source_exchange or 0, row.copy or 0): row for row in rows}
