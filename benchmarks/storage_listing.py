"""How quickly a large trace opens and lists: a new interpreter each time, as a command would be.

    python benchmarks/storage_listing.py [--exchanges 100000] [--keep FILE]

The trace is made by the writer and the reader's own calls: sessions of 200 turns, each turn a request of its own with a short answer.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from storage import sessions
from storage.records import Arrival, Exchange, ExchangeId, Marks, Placement, Reading, Request, Response, State, Usage
from storage.trace import Trace
from storage.writer import Writer

TURNS = 200
SECOND_NS = 1_000_000_000
ROUNDS = 5

LIST = """
import time
begun, wall = time.process_time(), time.perf_counter()
from storage import exchanges, sessions
from storage.trace import Trace
imported = time.process_time()
trace = Trace.open({path!r})
opened = time.process_time()
found = sessions.listing(trace)
listed = time.process_time()
rows = exchanges.listing(trace)
ended = time.process_time()
assert (len(found), len(rows)) == ({sessions}, {exchanges}), (len(found), len(rows))
print(imported - begun, opened - imported, listed - opened, ended - listed, time.process_time(), time.perf_counter() - wall)
"""
STEPS = ("import", "open", "list sessions", "list exchanges", "whole interpreter, CPU", "whole, wall")


def main() -> None:
    """Makes the trace, lists it several times, prints the best and the median of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="where to keep the trace, or find it from an earlier time")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.keep or Path(folder) / "listing.trace"
        if not path.exists():
            _make(path, asked.exchanges)
        print(f"{asked.exchanges} exchanges, {path.stat().st_size / 1e6:.1f} MB on disk")
        _measure(path, asked.exchanges)


def _measure(path: Path, count: int) -> None:
    program = LIST.format(path=str(path), sessions=-(-count // TURNS), exchanges=count)
    rounds = []
    for _ in range(ROUNDS):
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        rounds.append([float(figure) for figure in said.stdout.split()])
    for step, figures in zip(STEPS, zip(*rounds, strict=True), strict=True):
        print(f"{step}: best {min(figures):.2f} s, median {sorted(figures)[len(figures) // 2]:.2f} s")


def _make(path: Path, count: int) -> None:
    begun = time.process_time()
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, lambda _: None)
        for exchange in _exchanges(count):
            writer.put(exchange)
            if exchange.started_ns % (1000 * SECOND_NS) == 0:
                writer.flush()
        writer.close()
        stored_s = time.process_time() - begun
        begun = time.process_time()
        for first in range(0, count, 10_000):
            numbers = range(first, min(count, first + 10_000))
            sessions.save(trace, [_reading(number) for number in numbers], [_placement(number) for number in numbers], 1)
        saved_s = time.process_time() - begun
        print(f"stored: {stored_s / count * 1e6:.0f} us of CPU an exchange; calls saved: {saved_s / count * 1e6:.0f} us each")


def _exchanges(count: int) -> Iterator[Exchange]:
    for number in range(count):
        yield Exchange(
            started_ns=(1_790_000_000 + number) * SECOND_NS,
            request=Request(
                method="POST",
                url="https://api.anthropic.com/v1/messages?beta=true",
                headers=(("Content-Type", "application/json"), ("anthropic-version", "2023-06-01")),
                body=b'{"model":"claude-sonnet-4-5","messages":[{"role":"user","content":"turn %d"}]}' % number,
            ),
            sent_ns=1_000_000,
            response=Response(
                status=200,
                headers=(("Content-Type", "text/event-stream"),),
                headers_at_ns=500_000_000,
                arrivals=tuple(Arrival(600_000_000 + at * 20_000_000, b"data: %d %d\n\n" % (number, at)) for at in range(5)),
            ),
            ended_ns=900_000_000,
        )


def _reading(number: int) -> Reading:
    return Reading(
        exchange_id=ExchangeId(number + 1),
        state=State.COMPLETE,
        dialect="anthropic_messages",
        model="claude-sonnet-4-5",
        kind="turn",
        streamed=True,
        stop="tool_use",
        usage=Usage(prompt=20_000 + number, cached=19_000, cache_written=500, output=90, reasoning=10),
        usage_raw='{"input_tokens":12,"output_tokens":90}',
        marks=Marks(
            first_byte_ns=600_000_000,
            first_content_ns=620_000_000,
            first_output_ns=640_000_000,
            first_text_ns=640_000_000,
            last_content_ns=680_000_000,
            content_reads=4,
        ),
        signals=(("x-claude-code-session-id", f"session-{number // TURNS}"), ("user-agent", "claude-cli/2.1.332")),
    )


def _placement(number: int) -> Placement:
    return Placement(
        exchange_id=ExchangeId(number + 1),
        session_key=f"session-{number // TURNS}",
        thread_key="main",
        number=number % TURNS + 1,
        kind="turn",
        client="claude-code",
        agent="main",
        after=(ExchangeId(number),) if number % TURNS else (),
        gap_ns=100_000_000 if number % TURNS else None,
        source="header",
        confidence=1.0,
    )


if __name__ == "__main__":
    main()
