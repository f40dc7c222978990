"""What the reuse ledger costs: a long session out of a trace, and a hundred thousand requests, growing as it should.

    python benchmarks/reuse_ledger.py [--turns 600] [--requests 100000]

The session is that of storage_session.py: tools and a system prompt of 60 kB, results of real source text, two elements more a turn. The
requests are synthetic paths of 20 to 60 elements in sessions of 40 turns, without text: what is measured is the prefix tree.
"""

import argparse
import random
import resource
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from storage_session import Session

from replay.reuse import ideal
from replay.reuse.blocks import Limits
from replay.reuse.ideal import Prompt
from replay.reuse.ledger import Names, account
from replay.reuse.prefix_tree import Ids, IdsOf
from replay.reuse.prompts import Prompts, with_replies
from replay.reuse.rules import Engine, llama_cpp, vllm
from storage import exchanges, sessions
from storage.records import Marks, Placement, Reading, State, Usage
from storage.trace import Trace
from storage.writer import Writer
from tracer import wire


def main() -> None:
    """Prints a line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=600)
    parser.add_argument("--requests", type=int, default=100_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Trace.open(Path(folder) / "session.trace", create=True) as trace:
        store(trace, asked.turns)
        of_session(trace)
    for count in (asked.requests // 4, asked.requests // 2, asked.requests):
        of_requests(count)
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def store(trace: Trace, turns: int) -> None:
    """A recorded session with what a reader would have derived of it."""
    writer = Writer(trace, wire.split)
    for exchange in Session(1).exchanges(turns):
        writer.put(exchange)
        writer.flush(120)
    writer.close()
    rows = exchanges.listing(trace)
    marks = Marks(first_content_ns=900_000_000, last_content_ns=1_900_000_000, content_reads=5)
    common = {"state": State.COMPLETE, "dialect": "anthropic_messages", "model": "m", "kind": "turn", "marks": marks}
    readings = [Reading(exchange_id=row.id, usage=Usage(), **common) for row in rows]  # type: ignore[arg-type]
    places = [Placement(exchange_id=row.id, session_key="s", thread_key="t", number=n, kind="turn") for n, row in enumerate(rows, 1)]
    sessions.save(trace, readings, places, 1)


def of_session(trace: Trace) -> None:
    """The parts of `playhead reuse` on one session."""
    rows = exchanges.listing(trace)
    prompts = Prompts(trace)
    counted, seconds = timed(lambda: prompts.counted(rows))
    known = [one.prompt for one in counted if one.prompt is not None]
    tokens = sum(prompt.tokens for prompt in known)
    print(f"{len(known)} turns, {tokens / 1e6:.1f} M prompt tokens, {len(known[-1].path)} elements in the last")
    print(f"  paths, elements, tokens counted: {seconds:.2f} s CPU")
    names = Names(prompts.ids_of, prompts.group_of)
    ledger, seconds = timed(lambda: account(counted, names, None, generated=False))
    print(f"  ledger without rules: {seconds:.2f} s CPU, ideal {ledger.totals.ideal_share:.2%}")
    replied, seconds = timed(lambda: with_replies(trace, counted))
    print(f"  answers read: {seconds:.2f} s CPU")
    known = [one.prompt for one in replied if one.prompt is not None]
    cases: list[tuple[str, Engine, Limits]] = [
        ("vllm, block 16", vllm, Limits(block_tokens=16)),
        ("llama_cpp, block 1", llama_cpp, Limits(block_tokens=1)),
        ("vllm, block 16, capacity 200,000, TTL 300 s", vllm, Limits(block_tokens=16, capacity_tokens=200_000, ttl_ns=300 * 10**9)),
    ]
    for name, engine, limits in cases:
        found, seconds = timed(lambda engine=engine, limits=limits: sum(engine.predict(known, prompts.ids_of, limits)))
        print(f"  predicted, {name}: {seconds:.2f} s CPU, {found / tokens:.2%}")


def of_requests(count: int) -> None:
    """The tree alone."""
    prompts, ids_of = synthetic(count)
    found, seconds = timed(lambda: sum(ideal.ideal(prompts, ids_of)))
    tokens = sum(prompt.tokens for prompt in prompts)
    each = 1e6 * seconds / count
    print(f"{count:,} requests, {tokens / 1e9:.2f} G tokens: {seconds:.1f} s CPU, {each:.0f} us each, ideal {found / tokens:.2%}")


def synthetic(count: int) -> tuple[Sequence[Prompt], IdsOf]:
    """Sessions of 40 growing turns, eight at a time, under one head that all share."""
    rng = random.Random(1)
    ids: dict[int, Ids] = {}
    depths: dict[int, int] = {}

    def element(above: int | None, length: int) -> int:
        name = len(ids)
        ids[name] = array("I", [rng.randrange(200_000) for _ in range(length)])
        depths[name] = (0 if above is None else depths[above]) + length
        return name

    head = [element(None, 2000)]
    head.append(element(head[0], 300))

    def turns() -> Iterator[tuple[int, ...]]:
        path = list(head)
        for _ in range(40):
            for _ in range(2):
                path.append(element(path[-1], rng.choice((20, 60, 200))))
            yield tuple(path)

    lanes = [turns() for _ in range(8)]
    prompts = []
    for number in range(count):
        path = next(lanes[number % 8], None)
        if path is None:
            lanes[number % 8] = turns()
            path = next(lanes[number % 8])
        depth = depths[path[-1]]
        at = number * 1000
        prompts.append(
            Prompt(exchange=number, space="m", start_ns=at, ready_ns=at + 3000, end_ns=at + 5000, path=path, estimate=depth, tokens=depth)
        )
    return prompts, ids.__getitem__


def timed[Found](work: Callable[[], Found]) -> tuple[Found, float]:
    """What it gives, and the CPU seconds it took."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


if __name__ == "__main__":
    main()
