"""How far a replay's TTFT and E2E are from what the server really did, at 1, 16 and 64 streams, beside two bare clients on the same load.

    python benchmarks/replay_timing.py [--streams 1 16 64] [--turns 6] [--body 200000]

The server is a process of its own that notes, on the same monotonic clock, when a request's first byte came and when it handed each token
to the kernel. Error = what the client says minus what the server did: it holds the client's work and both ends' scheduling. All streams
start at once (the hardest case). `replay` is the whole path of `playhead replay`: trace, plan, engine, sender, writer, reading.
"""

import argparse
import asyncio
import hashlib
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

import golden_server
import httpx
import orjson

from replay.edits import Edits
from replay.plan import plan
from replay.run import Options, replay
from replay.statistics import percentile
from storage import exchanges
from storage.records import Arrival, Exchange, Request, Response
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire

NS = time.monotonic_ns


class Server:
    """The golden server in its process."""

    def __init__(self) -> None:
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".jsonl")  # noqa: SIM115 - closed with the server
        self.child = subprocess.Popen([sys.executable, golden_server.__file__], stdout=self.log)
        while not (lines := pathlib.Path(self.log.name).read_text().splitlines()):
            assert self.child.poll() is None, "the golden server did not start"
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{lines[0]}"

    def truth(self) -> dict[str, dict[str, int]]:
        rows = [json.loads(line) for line in pathlib.Path(self.log.name).read_text().splitlines()[1:]]
        return {row["sha256"]: row for row in rows}

    def close(self) -> None:
        self.child.terminate()
        self.child.wait()
        self.log.close()


# ---- the clients ---------------------------------------------------------------------------------------------------

type Said = list[tuple[str, float, float]]
"""(sha256 of the answer, TTFT ms, E2E ms) of every turn."""


def bodies(streams: int, turns: int, size: int) -> list[list[bytes]]:
    """The request bodies of each stream, growing by a message a turn."""
    lanes = []
    for stream in range(streams):
        text = (f"stream {stream} reads files and writes code; " * (size // 20))[:size]
        messages: list[dict[str, str]] = [{"role": "system", "content": f"agent {stream}"}, {"role": "user", "content": text}]
        lane = []
        for turn in range(turns):
            lane.append(orjson.dumps({"model": "golden", "stream": True, "stream_options": {"include_usage": True}, "messages": messages}))
            messages = [*messages, {"role": "assistant", "content": f"step {turn}"}, {"role": "user", "content": f"go on {turn}"}]
        lanes.append(lane)
    return lanes


def judged(start_ns: int, reads: list[tuple[int, bytes]]) -> tuple[str, float, float]:
    """Finds the first and the last token in stamped reads, after the fact."""
    whole, ends, at = b"".join(data for _, data in reads), [], 0
    for when, data in reads:
        at += len(data)
        ends.append((at, when))
    marks, at = [], 0
    for event in whole.split(b"\n\n")[:-1]:
        at += len(event) + 2
        if b'"content":"tok' in event:
            marks.append(at)
    first, last = (next(when for end, when in ends if end >= mark) for mark in (marks[0], marks[-1]))
    return hashlib.sha256(whole).hexdigest(), (first - start_ns) / 1e6, (last - start_ns) / 1e6


async def by_httpx(url: str, lanes: list[list[bytes]]) -> Said:
    """httpx as it is usually used: one client, `aiter_raw`."""
    said = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1000)
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as client:

        async def lane(turns: list[bytes]) -> None:
            for body in turns:
                reads, start = [], NS()
                async with client.stream("POST", f"{url}/v1/chat/completions", content=body) as answer:
                    async for piece in answer.aiter_raw():
                        reads.append((NS(), piece))  # noqa: PERF401 - each with its own stamp
                said.append((start, reads))

        await asyncio.gather(*[lane(turns) for turns in lanes])
    return [judged(start, reads) for start, reads in said]


async def by_streams(url: str, lanes: list[list[bytes]]) -> Said:
    """asyncio's own streams, one open connection each, no HTTP library: the least a client can do."""
    said, port = [], int(url.rsplit(":", 1)[1])

    async def lane(turns: list[bytes], connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        reader, writer = connection
        for body in turns:
            reads, start = [], NS()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            while not reads or not reads[-1][1].endswith(b"0\r\n\r\n"):
                data = await reader.read(65536)
                reads.append((NS(), data))
            said.append((start, unframed(reads)))
        writer.close()

    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in lanes]
    await asyncio.gather(*[lane(turns, connection) for turns, connection in zip(lanes, opened, strict=True)])
    return [judged(start, reads) for start, reads in said]


def unframed(reads: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Body pieces of reads that hold HTTP framing; here each event is one line between CRLFs."""
    whole, out, at = b"".join(data for _, data in reads), [], 0
    stamps = []
    for when, data in reads:
        at += len(data)
        stamps.append((at, when))
    place = whole.index(b"\r\n\r\n") + 4
    while True:
        line = whole.index(b"\r\n", place)
        size = int(whole[place:line], 16)
        if size == 0:
            return out
        end = line + 2 + size
        out.append((next(when for upto, when in stamps if upto >= end), whole[line + 2 : end]))
        place = end + 2


def by_replay(url: str, lanes: list[list[bytes]]) -> Said:
    """The product: a trace with these turns as recorded, replayed, its listing read."""
    with tempfile.TemporaryDirectory() as folder, Trace.open(pathlib.Path(folder) / "bench.trace", create=True) as trace:
        record(trace, lanes)
        reading.catch_up(trace)
        rows = exchanges.listing(trace)
        made = plan(rows)
        options = Options(edits=Edits(target=url, length="free"), gaps="drop", concurrency=len(lanes))
        outcome = replay(trace, made, {row.id: row for row in rows}, options)
        by_replay.lag = outcome.summary["lag_ms"]  # type: ignore[attr-defined]
        played = exchanges.listing(trace, runs=[outcome.run])
    return [(r.response_sha256, (r.marks.first_content_ns or 0) / 1e6, (r.marks.last_content_ns or 0) / 1e6) for r in played]


def record(trace: Trace, lanes: list[list[bytes]]) -> None:
    """Puts the turns into a trace as an agent's recorder would have."""
    writer, at_ns = Writer(trace, wire.split), 1_760_000_000_000_000_000
    for stream, turns in enumerate(lanes):
        for turn, body in enumerate(turns):
            writer.put(recorded(at_ns + turn * 1_000_000_000, stream, body))
    writer.close()


def recorded(started_ns: int, stream: int, body: bytes) -> Exchange:
    said = golden_server.events(1_000_000 + stream)
    headers = (("content-type", "application/json"), ("user-agent", "opencode/1.18.33"), ("x-session-id", f"ses_{stream}"))
    return Exchange(
        started_ns=started_ns,
        request=Request(method="POST", url="https://api.example.com/v1/chat/completions", headers=headers, body=body),
        sent_ns=1_000_000,
        response=Response(
            status=200,
            headers=(("content-type", "text/event-stream"),),
            headers_at_ns=5_000_000,
            arrivals=tuple(Arrival(10_000_000 + 1_000_000 * place, event) for place, event in enumerate(said)),
        ),
        ended_ns=50_000_000,
    )


# ---- the comparison ------------------------------------------------------------------------------------------------


def errors(said: Said, truth: dict[str, dict[str, int]]) -> str:
    """Error of TTFT and E2E as `p50 / p99`."""
    parts = []
    for place, mark in ((1, "first_ns"), (2, "last_ns")):
        off = sorted(one[place] - (truth[one[0]][mark] - truth[one[0]]["came_ns"]) / 1e6 for one in said)
        parts.append(f"{percentile(off, 0.5):.2f} / {percentile(off, 0.99):.2f}")
    return " | ".join(parts)


def timed(client: Callable[[str, list[list[bytes]]], Said | Awaitable[Said]], lanes: list[list[bytes]]) -> str:
    server = Server()
    try:
        before = resource.getrusage(resource.RUSAGE_SELF)
        said = client(server.url, lanes)
        if not isinstance(said, list):
            said = asyncio.run(said)  # type: ignore[arg-type]
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu_ms = 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / len(said)
        return f"{errors(said, server.truth())} | {cpu_ms:.1f}"
    finally:
        server.close()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    asked.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64])
    asked.add_argument("--turns", type=int, default=6)
    asked.add_argument("--body", type=int, default=200_000)
    options = asked.parse_args()
    print("| streams | client | TTFT error p50 / p99 ms | E2E error p50 / p99 ms | CPU ms a turn |\n|---|---|---|---|---|")
    for streams in options.streams:
        lanes = bodies(streams, options.turns, options.body)
        for name, client in (("httpx, one client", by_httpx), ("asyncio streams", by_streams), ("playhead replay", by_replay)):
            print(f"| {streams} | {name} | {timed(client, lanes)} |", flush=True)
        print(f"|  | *lag of the replay* | {by_replay.lag['p50']:.2f} / {by_replay.lag['p99']:.2f} | | |", flush=True)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
