"""Real traces of Anthropic sessions whose usage and times are given, as a recorder and a replay would have left them."""

import json
from collections.abc import Sequence
from typing import Any

from storage import exchanges, runs
from storage.records import Arrival, Exchange, Replayed, Request, Response, RunId
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, tokens, wire

BEGAN_NS = 1_780_000_000 * 10**9
SECOND = 10**9


def said(turn: int) -> str:
    """What the assistant answers in a turn."""
    return f"Did step {turn}, all of it. " * 6


def body(turn: int, *, system: str = "You are an agent.", model: str = "m") -> bytes:
    """The request of a turn: every turn adds an answer and a question."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Begin. " * 20}]
    for earlier in range(1, turn):
        messages += [{"role": "assistant", "content": said(earlier)}, {"role": "user", "content": f"Go on, step {earlier}. " * 12}]
    tools = [{"name": "Read", "description": "Reads a file and gives its text.", "input_schema": {"type": "object"}}]
    return json.dumps({"model": model, "max_tokens": 64, "tools": tools, "system": system, "messages": messages}).encode()


def count(sent: bytes) -> int:
    """Tokens of a request, as the simulator counts them."""
    found = tokens.prompt_ids(Request(method="POST", url="http://up/v1/messages", headers=(), body=sent))
    assert found is not None
    return sum(len(ids) for _, ids in found)


def exchange(turn: int, sent: bytes, cached: int | None, *, session: str = "one", start_s: float | None = None) -> Exchange:
    """One exchange of half a second; turns start a second apart. `cached` None: the server does not say."""
    usage = {"input_tokens": count(sent) - (cached or 0), "output_tokens": 9}
    if cached is not None:
        usage |= {"cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
    reply = {"id": f"msg_{session}_{turn}", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    answer = json.dumps(reply | {"stop_sequence": None, "content": [{"type": "text", "text": said(turn)}], "usage": usage}).encode()
    headers = (
        ("content-type", "application/json"),
        ("user-agent", "claude-cli/2.1.332 (external, cli)"),
        ("X-Claude-Code-Session-Id", f"00000000-0000-4000-8000-{session:0>12}"),
    )
    return Exchange(
        started_ns=BEGAN_NS + round((turn if start_s is None else start_s) * SECOND),
        request=Request(method="POST", url="http://up/v1/messages", headers=headers, body=sent),
        sent_ns=1000,
        response=Response(
            status=200, headers=(("content-type", "application/json"),), headers_at_ns=2000, arrivals=(Arrival(SECOND // 2 - 9, answer),)
        ),
        ended_ns=SECOND // 2,
    )


def record(trace: Trace, sent: Sequence[Exchange]) -> None:
    """Puts exchanges in a trace, read."""
    writer = Writer(trace, wire.split)
    for one in sent:
        writer.put(one)
    writer.close()
    reading.catch_up(trace)


def replay(trace: Trace, sent: Sequence[Exchange], *, settings: dict[str, Any] | None = None) -> RunId:
    """The same as a run that repeats the first recorded exchanges."""
    run = runs.create(trace, target="http://127.0.0.1:9", settings=settings or {}, started_ns=sent[0].started_ns)
    sources = [row.id for row in exchanges.listing(trace)]
    writer = Writer(trace, wire.split)
    for one, source in zip(sent, sources, strict=False):
        writer.put(one, Replayed(run_id=run.id, source_exchange=source, copy=0, ready_ns=one.started_ns))
    writer.close()
    reading.catch_up(trace)
    return run.id
