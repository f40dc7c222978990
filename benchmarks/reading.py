"""How quickly a trace is read: one long session, and very many small exchanges.

    python benchmarks/reading.py [--turns 600] [--exchanges 100000]

The long session is that of `storage_session.py` (about 460 MB of request bodies for 600 turns). The small exchanges are sessions of 20
turns of a client without ids, so that all of identity's indexes are used; they are read in one go, then 100 more after them.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
from storage_session import Session

from storage.records import Arrival, Exchange, Request, Response
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire

TURNS = 20
SECOND_NS = 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS


def small(first: int, count: int) -> Iterator[Exchange]:
    """Chat sessions one after the other, each turn repeating the one before and its answer."""
    for number in range(first, first + count):
        session, turn = divmod(number, TURNS)
        talk = [{"role": "user", "content": f"Question 0 of {session}"}]
        for earlier in range(turn):
            talk += [
                {"role": "assistant", "content": f"Answer {earlier} of {session}"},
                {"role": "user", "content": f"Question {earlier + 1} of {session}"},
            ]
        body = orjson.dumps({"model": "m", "messages": [{"role": "system", "content": "Help."}, *talk]})
        message = {"role": "assistant", "content": f"Answer {turn} of {session}"}
        answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
        yield Exchange(
            started_ns=START_NS + number * SECOND_NS,
            request=Request(method="POST", url="http://127.0.0.1/v1/chat/completions", headers=(("user-agent", "bench/1"),), body=body),
            sent_ns=1000,
            response=Response(
                status=200,
                headers=(("content-type", "application/json"),),
                headers_at_ns=5000,
                arrivals=(Arrival(6000, orjson.dumps(answer)),),
            ),
            ended_ns=SECOND_NS // 2,
        )


def store(path: Path, exchanges: Iterator[Exchange]) -> int:
    """Writes exchanges; the bytes of their request bodies."""
    size = 0
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, wire.split)
        for exchange in exchanges:
            size += len(exchange.request.body)
            writer.put(exchange)
            if size % 64 == 0:
                writer.flush(600)
        writer.close(600)
    return size


def read(path: Path) -> tuple[int, float, float]:
    """Reads what is unread: exchanges, wall seconds, CPU seconds."""
    with Trace.open(path) as trace:
        wall, cpu = time.perf_counter(), time.process_time()
        count = reading.catch_up(trace)
        return count, time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Stores and reads both, prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=600)
    parser.add_argument("--exchanges", type=int, default=100_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.trace"
        size = store(path, Session(1).exchanges(asked.turns))
        before = path.stat().st_size
        count, wall, cpu = read(path)
        grown = path.stat().st_size - before
        print(
            f"one session of {count} turns, {size / 1e6:.0f} MB of bodies: {wall:.1f} s ({cpu:.1f} s of CPU), {grown / count:.0f} B a call"
        )
        path = Path(folder) / "small.trace"
        store(path, small(0, asked.exchanges))
        count, wall, cpu = read(path)
        print(f"{count} small exchanges: {wall:.1f} s ({cpu:.1f} s of CPU), {1e6 * cpu / count:.0f} us each")
        store(path, small(asked.exchanges, 100))
        count, wall, cpu = read(path)
        print(f"{count} more after them: {wall:.1f} s ({cpu:.1f} s of CPU)")


if __name__ == "__main__":
    main()
