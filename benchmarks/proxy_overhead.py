"""What recording costs over plain mitmproxy: CPU an exchange, time to the first event, delay of every event; 1, 8 and 32 streams.

    .venv/bin/python benchmarks/proxy_overhead.py [--rounds 8] [--streams 1 8 32] [--json FILE]

Three ways to one upstream (`stamped_upstream.py`), same client: none between (`direct`), plain `mitmdump` with the least tap, and
`playhead record`. A stream is a 200 kB request and 200 events 10 ms apart; streams side by side begin at different moments. Each round
goes through all sides, back and forth; ratios and differences are of one round, and their median counts. Exit 3 when a bar is missed.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from proxy_ends import Answer, Side, body, connect, exchange, start

EVENTS, GAP_US, REQUEST_BYTES, SHORT = 200, 10_000, 200_000, 40
SETTLE_S = 0.7
"""What is stored behind a stream belongs to it."""
CPU_BAR, TTFT_BAR_MS, CHUNK_BAR_MS = 1.15, 0.5, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One side in one round: CPU ms an exchange (`writer_ms`: the share of threads beside the loop's), and latencies."""

    cpu_ms: float
    writer_ms: float
    ttft_ms: list[float]
    chunk_ms: list[float]


async def streams(side: Side, count: int, number: int) -> list[Answer]:
    """So many streams side by side, begun within one gap of each other."""

    async def one(place: int) -> Answer:
        await asyncio.sleep(place * GAP_US / 1e6 / count)
        return await exchange(side, f"events={EVENTS}&gap_us={GAP_US}", body(REQUEST_BYTES, number * 100 + place))

    return list(await asyncio.gather(*[one(place) for place in range(count)]))


async def shorts(side: Side, number: int) -> list[Answer]:
    """Short exchanges one after the other on one connection."""
    client = await connect(side)
    found = [await client.ask("events=5", body(REQUEST_BYTES, number * 100 + place)) for place in range(SHORT)]
    client.transport.close()
    return found


async def measure(side: Side, load: str, number: int) -> Measured:
    """One load through one side."""
    cpu, writer = side.cpu_s(), side.writer_cpu_s()
    answers = await (shorts(side, number) if load == "short" else streams(side, int(load), number))
    await asyncio.sleep(SETTLE_S)
    each = 1000 / len(answers)
    return Measured(
        cpu_ms=(side.cpu_s() - cpu) * each,
        writer_ms=(side.writer_cpu_s() - writer) * each,
        ttft_ms=[answer.ttft_ms for answer in answers],
        chunk_ms=[delay for answer in answers for delay in answer.delays_ms()[1:]] or [0.0],
    )


async def rounds(sides: dict[str, Side], loads: list[str], count: int) -> dict[str, dict[str, list[Measured]]]:
    """By load and side, one figure a round."""
    found: dict[str, dict[str, list[Measured]]] = {load: {name: [] for name in sides} for load in loads}
    for side in sides.values():
        await shorts(side, 0)
    for number in range(1, count + 1):
        for load in loads:
            names = list(sides)
            for name in names if number % 2 else reversed(names):
                found[load][name].append(await measure(sides[name], load, number))
        print(f"round {number} of {count}", file=sys.stderr)
    return found


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def added(found: dict[str, list[Measured]], name: str, what: str, share: float) -> list[float]:
    """What a side adds to the way without it, round by round."""
    pairs = zip(found[name], found["direct"], strict=True)
    return [quantile(getattr(one, what), share) - quantile(getattr(none, what), share) for one, none in pairs]


def spread(values: list[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def tell(found: dict[str, dict[str, list[Measured]]]) -> list[str]:
    """Prints the table; gives the bars that were missed. Figures are medians over rounds (least..most)."""
    missed = []
    print(
        "load   side      CPU ms an exchange     of it other threads  TTFT added p50 / p99 ms                chunk delay added p50 / p99 ms"
    )
    for load, sides in found.items():
        for name in ("mitmdump", "playhead"):
            cpu, writer = [one.cpu_ms for one in sides[name]], [one.writer_ms for one in sides[name]]
            latency = [spread(added(sides, name, what, share), 3) for what in ("ttft_ms", "chunk_ms") for share in (0.5, 0.99)]
            print(f"{load:6} {name:9} {spread(cpu):22} {spread(writer):20} {latency[0]} / {latency[1]:22} {latency[2]} / {latency[3]}")
        ratio = [ours.cpu_ms / plain.cpu_ms for ours, plain in zip(sides["playhead"], sides["mitmdump"], strict=True)]
        over = {
            what: [
                ours - plain for ours, plain in zip(added(sides, "playhead", what, 0.5), added(sides, "mitmdump", what, 0.5), strict=True)
            ]
            for what in ("ttft_ms", "chunk_ms")
        }
        print(f"{load:6} over it  CPU x {spread(ratio)}; TTFT {spread(over['ttft_ms'], 3)} ms; chunk {spread(over['chunk_ms'], 3)} ms\n")
        figures = [("CPU", ratio, CPU_BAR), ("TTFT", over["ttft_ms"], TTFT_BAR_MS), ("chunk delay", over["chunk_ms"], CHUNK_BAR_MS)]
        missed += [f"{load}: {what} {statistics.median(got):.3f}, bar {bar}" for what, got, bar in figures if statistics.median(got) > bar]
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description="What recording costs over plain mitmproxy.")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--streams", nargs="+", default=["1", "8", "32", "short"], metavar="COUNT|short")
    parser.add_argument("--json", type=Path, help="also write every figure of every round here")
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        found = asyncio.run(rounds(start(stack, Path(folder)), chosen.streams, chosen.rounds))
    missed = tell(found)
    print(f"{chosen.rounds} rounds in {time.monotonic() - began:.0f} s; ratios and differences of one round, their median (least..most)")
    if chosen.json:
        rows = [
            {"load": load, "side": name, **{what: getattr(one, what) for what in Measured.__slots__}}
            for load, sides in found.items()
            for name, side in sides.items()
            for one in side
        ]
        chosen.json.write_text(json.dumps(rows))
    for text in missed:
        print(f"missed: {text}")
    return 3 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
