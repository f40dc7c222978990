"""What a long session costs in a trace: bytes on disk and CPU seconds to store, to verify and to read back.

    python benchmarks/storage_session.py [--turns 600]

The session is synthetic and grows like a real one: tools and a system prompt of 60 kB, tool results of 200 to 6,000 bytes of real source
text, a `cache_control` marker that moves to the last message of each turn, an answer of about 1.5 kB as an event stream.
"""

import argparse
import hashlib
import random
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from storage import exchanges, verify
from storage.records import Arrival, Exchange, ExchangeId, Request, Response
from storage.trace import Trace
from storage.writer import Writer
from tracer import wire

RESULT_BYTES = (200, 500, 1500, 6000)
SECOND_NS = 1_000_000_000
MARKER = {"type": "ephemeral"}


class Session:
    """Request bodies one after the other, joined from parts that were serialised once."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:120]
        self._source = "".join(file.read_text(errors="ignore") for file in files)
        self._tools = orjson.dumps([self._tool(index) for index in range(25)])
        self._system = orjson.dumps([{"type": "text", "text": self.text(20_000), "cache_control": MARKER}])

    def text(self, size: int) -> str:
        """A stretch of source text."""
        at = self._rng.randrange(len(self._source) - size)
        return self._source[at : at + size]

    def _tool(self, index: int) -> dict[str, object]:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        return {"name": f"tool{index}", "description": self.text(1500), "input_schema": schema}

    def exchanges(self, turns: int) -> Iterator[Exchange]:
        """One exchange a turn."""
        done: list[bytes] = []
        for turn in range(turns):
            result = {"type": "tool_result", "tool_use_id": f"toolu_{turn:024}", "content": self.text(self._rng.choice(RESULT_BYTES))}
            marked = orjson.dumps({"role": "user", "content": [result | {"cache_control": MARKER}]})
            body = b'{"model":"claude-sonnet-4-5","max_tokens":32000,"messages":[%b],"system":%b,"tools":%b,"stream":true}' % (
                b",".join([*done, marked]),
                self._system,
                self._tools,
            )
            arguments = orjson.dumps({"path": self.text(60)})
            yield _exchange(turn, body, arguments)
            done.append(orjson.dumps({"role": "user", "content": [result]}))
            use = {"type": "tool_use", "id": f"toolu_{turn + 1:024}", "name": f"tool{turn % 25}", "input": orjson.loads(arguments)}
            done.append(orjson.dumps({"role": "assistant", "content": [use]}))


def _exchange(turn: int, body: bytes, arguments: bytes) -> Exchange:
    headers = (
        ("Content-Type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("x-api-key", "***:3f9c0a61b2d4e875"),
        ("X-Claude-Code-Session-Id", "8c1d7a52-4f0e-4f6b-9c58-000000000600"),
        ("User-Agent", "claude-cli/2.1.332 (external, sdk-cli)"),
        ("Content-Length", str(len(body))),
    )
    answer = tuple(
        Arrival(900_000_000 + index * 20_000_000 + turn, event) for index, event in enumerate(_events(turn, len(body), arguments))
    )
    return Exchange(
        started_ns=1_790_000_000 * SECOND_NS + turn * 7 * SECOND_NS,
        request=Request(method="POST", url="https://api.anthropic.com/v1/messages?beta=true", headers=headers, body=body),
        sent_ns=2_000_000 + turn,
        response=Response(
            status=200,
            headers=(("Content-Type", "text/event-stream; charset=utf-8"), ("request-id", f"req_{hashlib.md5(body).hexdigest()}")),
            headers_at_ns=800_000_000 + turn,
            arrivals=answer,
        ),
        ended_ns=2 * SECOND_NS + turn,
    )


def _events(turn: int, size: int, arguments: bytes) -> Iterator[bytes]:
    """An answer that thinks a little and calls a tool."""
    usage = {"input_tokens": 12, "cache_read_input_tokens": size // 4, "cache_creation_input_tokens": 300, "output_tokens": 1}
    message = {"id": f"msg_{turn:024}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [], "usage": usage}
    use = {"type": "tool_use", "id": f"toolu_{turn + 1:024}", "name": f"tool{turn % 25}", "input": {}}
    yield _event("message_start", message=message)
    yield _event("content_block_start", index=0, content_block=use)
    for at in range(0, len(arguments), 12):
        piece = arguments[at : at + 12].decode(errors="replace")
        yield _event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": piece})
    yield _event("content_block_stop", index=0)
    yield _event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 40 + turn % 90})
    yield _event("message_stop")


def _event(name: str, **fields: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name} | fields))


def main() -> None:
    """Stores, measures, verifies, reads back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder) / "session.trace", Session(asked.seed), asked.turns)


def measure(path: Path, session: Session, turns: int) -> None:
    """Prints the figures of one session."""
    hashes, size, answers = [], 0, 0
    stored_s = 0.0
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, wire.split)
        for exchange in session.exchanges(turns):
            assert exchange.response
            hashes.append(_digest(exchange))
            size += len(exchange.request.body)
            answers += len(exchange.response.body)
            before = time.process_time()
            writer.put(exchange)
            writer.flush()
            stored_s += time.process_time() - before
        writer.close()
    disk = sum(each.stat().st_size for each in path.parent.iterdir())
    print(f"{turns} turns: {size / 1e6:.1f} MB of request bodies, {answers / turns:.0f} B an answer")
    print(f"on disk: {disk / 1e6:.2f} MB ({100 * disk / (size + answers):.2f} %)")
    print(f"stored: {stored_s:.2f} s of CPU, {size / 1e6 / stored_s:.0f} MB of body a CPU second")
    _read_back(path, hashes)


def _read_back(path: Path, hashes: list[bytes]) -> None:
    with Trace.open(path) as trace:
        before = time.process_time()
        found = verify.verify(trace)
        print(f"verified: {time.process_time() - before:.2f} s of CPU, {found.problem_count} problems")
        before = time.process_time()
        ids = [ExchangeId(number) for number in range(1, len(hashes) + 1)]
        back = [_digest(each) for each in exchanges.load_many(trace, ids)]
        equal = sum(a == b for a, b in zip(hashes, back, strict=True))
        print(f"read back: {time.process_time() - before:.2f} s of CPU, {equal} of {len(hashes)} equal")


def _digest(exchange: Exchange) -> bytes:
    """Of both bodies."""
    assert exchange.response
    return hashlib.sha256(exchange.request.body + exchange.response.body).digest()


if __name__ == "__main__":
    main()
