"""What recording costs over plain mitmproxy: CPU a stream and time to the first byte, the same load through both in turns.

    .venv/bin/python benchmarks/recorder_overhead.py [--pairs 6] [--threads]

A round is one stream of 200 events 5 ms apart behind a 200 kB request, then eight side by side, then forty short exchanges. The plain side
is `mitmdump` with the least addon that could time a stream. Rounds go plain, playhead, playhead, plain, ... so that whatever else the
machine does falls on both; the figures are medians of the ratios of neighbours. Linux only (/proc).
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

EVENTS, GAP_S, SIDE_BY_SIDE, SHORT = 200, 0.005, 8, 40
TEXT = " ".join(f"line {number} of what was said before, which is never quite the same;" for number in range(3000))
BODY = json.dumps({"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": TEXT}]}).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"token "}}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)

TAP = """
import time

class Tap:
    def requestheaders(self, flow):
        kept = []
        def tap(data):
            kept.append((time.monotonic_ns(), data))
            return data
        flow.request.stream = tap

    def responseheaders(self, flow):
        kept = []
        def tap(data):
            kept.append((time.monotonic_ns(), data))
            return data or []
        flow.response.stream = tap

addons = [Tap()]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """CPU of the proxy for the streams and for the short exchanges, and when the first bytes of the short ones came."""

    streams_s: float
    shorts_s: float
    ttft_ms: tuple[float, ...]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The upstream: reads a request, sends its events on time."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            writer.write(HEAD)
            due = time.monotonic()
            for _ in range(EVENTS if b"slow" in head.partition(b"\r\n")[0] else 5):
                writer.write(CHUNK)
                if b"slow" in head.partition(b"\r\n")[0]:
                    due += GAP_S
                    await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def ask(port: int, kind: str, count: int = 1) -> list[float]:
    """So many exchanges on one connection; ms to the first byte of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = f"POST /v1/messages?n={kind} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    first = []
    for _ in range(count):
        began = time.monotonic()
        writer.write(request.encode() + BODY)
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"\n")
        first.append((time.monotonic() - began) * 1000)
        await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()
    return first


async def load(pid: int, port: int) -> Round:
    """One round through the proxy `pid` that listens on `port`."""
    before = cpu_s(pid)
    await ask(port, "slow")
    await asyncio.gather(*[ask(port, "slow") for _ in range(SIDE_BY_SIDE)])
    await asyncio.sleep(0.5)  # what is stored behind the stream belongs to it
    between = cpu_s(pid)
    first = await ask(port, "short", SHORT)
    await asyncio.sleep(0.5)
    return Round(streams_s=between - before, shorts_s=cpu_s(pid) - between, ttft_ms=tuple(first))


def cpu_s(pid: int) -> float:
    """CPU seconds of a program so far, by its clock (clock_getcpuclockid(3)): /proc counts in hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)


def threads_s(pid: int) -> dict[str, float]:
    """CPU of each thread of a program, by its number and name."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        parts = rest.split()
        found[f"{task.name} {name}"] = (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


@contextmanager
def program(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A program while it is needed."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def mitmdump(stack: ExitStack, upstream: str, folder: Path) -> tuple[int, int]:
    """(pid, port) of plain mitmproxy with the least tap."""
    port, tap = free_port(), folder / "tap.py"
    tap.write_text(TAP)
    command = [str(Path(sys.executable).with_name("mitmdump")), "-q", "--mode", f"reverse:{upstream}@127.0.0.1:{port}", "-s", str(tap)]
    process = stack.enter_context(program(*command, "--set", f"confdir={folder / 'mitm'}", "--set", "connection_strategy=lazy"))
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process.pid, port
        time.sleep(0.1)
    raise RuntimeError("mitmdump did not listen")


def recorder(stack: ExitStack, upstream: str, folder: Path) -> tuple[int, int]:
    """(pid, port) of the recorder."""
    command = [sys.executable, "-m", "cli.main", "record", "--upstream", upstream, "--trace", str(folder / "overhead.trace"), "--json"]
    process = stack.enter_context(program(*command))
    assert process.stdout
    return process.pid, int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])


async def measure(pairs: int, *, by_thread: bool) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 22)
    upstream = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        sides = {"plain": mitmdump(stack, upstream, Path(name)), "playhead": recorder(stack, upstream, Path(name))}
        for _, port in sides.values():
            await ask(port, "short", SHORT)
        rounds: dict[str, list[Round]] = {side: [] for side in sides}
        for side in (["plain", "playhead", "playhead", "plain"] * pairs)[: 2 * pairs]:
            rounds[side].append(await load(*sides[side]))
        if by_thread:
            for side, (pid, _) in sides.items():
                print(side, {name: spent for name, spent in threads_s(pid).items() if spent > 0.02})
        tell(rounds)
        server.close()


def tell(rounds: dict[str, list[Round]]) -> None:
    """Prints the medians."""
    pairs = list(zip(rounds["plain"], rounds["playhead"], strict=True))
    streams = statistics.median(ours.streams_s / plain.streams_s for plain, ours in pairs)
    shorts = statistics.median(ours.shorts_s / plain.shorts_s for plain, ours in pairs)
    each = {side: 1000 * statistics.median(one.streams_s for one in found) / (SIDE_BY_SIDE + 1) for side, found in rounds.items()}
    short = {side: 1000 * statistics.median(one.shorts_s for one in found) / SHORT for side, found in rounds.items()}
    first = {side: statistics.median(ms for one in found for ms in one.ttft_ms) for side, found in rounds.items()}
    print(f"CPU a stream of {EVENTS} events: {each['plain']:.1f} ms plain, {each['playhead']:.1f} ms recorded, {streams:.2f} x")
    print(f"CPU a short exchange: {short['plain']:.2f} ms plain, {short['playhead']:.2f} ms recorded, {shorts:.2f} x")
    print(f"TTFT p50: {first['plain']:.2f} ms plain, {first['playhead']:.2f} ms recorded; {len(pairs)} pairs of rounds")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What recording costs over plain mitmproxy.")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--threads", action="store_true", help="also print the CPU of each thread")
    chosen = parser.parse_args()
    asyncio.run(measure(chosen.pairs, by_thread=chosen.threads))
