"""What the benchmarks of the proxy share: the programs on the way, their CPU, and a client that stamps every read. Linux only (/proc)."""

import asyncio
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
AT = re.compile(rb'"at":"(\d{20})"')

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
"""The least addon that could time a stream."""


@dataclass(frozen=True, slots=True)
class Side:
    """A way to the upstream: the port to ask, and the proxy there (None: the upstream itself)."""

    port: int
    pid: int | None = None

    def cpu_s(self) -> float:
        """CPU seconds of the whole program so far, by its clock (clock_getcpuclockid(3)): /proc counts in hundredths."""
        return time.clock_gettime((~self.pid << 3) | 2) if self.pid else 0.0

    def writer_cpu_s(self) -> float:
        """CPU seconds of the threads beside the one with the event loop."""
        if not self.pid:
            return 0.0
        others = [task for task in Path(f"/proc/{self.pid}/task").iterdir() if task.name != str(self.pid)]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in others) / 1e9

    def memory_mb(self) -> float:
        """Resident memory now."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def body(size: int, number: int) -> bytes:
    """A request as agents send them: a long history in messages, of which the last is new."""
    said = [f"message {i}: " + "all of this has been said before. " * 58 for i in range(max(0, size // 2050 - 1))]
    messages = [{"role": "user", "content": text} for text in [*said, f"and this is new: {number}"]]
    return json.dumps({"model": "m", "max_tokens": 9, "stream": True, "messages": messages}).encode()


class Client(asyncio.Protocol):
    """One connection. Every read is stamped first of all; what was read is looked at only when the answer is whole."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, bytes]] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self.reads.append((time.monotonic_ns(), data))
        if data.endswith(b"0\r\n\r\n"):
            self.ended.set_result(None)

    def connection_lost(self, why: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(why or ConnectionError("the answer broke off"))

    async def ask(self, query: str, sent: bytes) -> "Answer":
        """One exchange."""
        self.reads, self.ended = [], asyncio.get_running_loop().create_future()
        head = f"POST /v1/messages?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(sent)}\r\n\r\n"
        began = time.monotonic_ns()
        self.transport.write(head.encode() + sent)
        await asyncio.wait_for(asyncio.shield(self.ended), 120)
        return Answer(began, self.reads)


@dataclass(frozen=True, slots=True)
class Answer:
    """When it was asked for, and what came when."""

    began_ns: int
    reads: list[tuple[int, bytes]]

    @property
    def ttft_ms(self) -> float:
        """From the request's first byte to the first event."""
        return next(at - self.began_ns for at, data in self.reads if AT.search(data)) / 1e6

    @property
    def ended_ms(self) -> float:
        return (self.reads[-1][0] - self.began_ns) / 1e6

    def delays_ms(self) -> list[float]:
        """Of each event, from the upstream's write to the client's read."""
        found, rest = [], b""
        for at, data in self.reads:
            text = rest + data
            stamps = list(AT.finditer(text))
            found += [(at - int(stamp[1])) / 1e6 for stamp in stamps]
            rest = text[stamps[-1].end() :] if stamps else text
        return found


async def connect(side: Side) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", side.port)
    return client


async def exchange(side: Side, query: str, sent: bytes) -> Answer:
    """One exchange on a connection of its own."""
    client = await connect(side)
    try:
        return await client.ask(query, sent)
    finally:
        client.transport.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


@contextmanager
def program(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A program while it is needed."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield child
    finally:
        child.terminate()
        child.wait(20)
        assert child.stdout
        child.stdout.close()


def start(stack: ExitStack, folder: Path) -> dict[str, Side]:
    """The sides by name: `direct`, `mitmdump` with the least tap, `playhead`."""
    upstream = stack.enter_context(program(sys.executable, str(HERE / "stamped_upstream.py")))
    assert upstream.stdout
    port = int(upstream.stdout.readline())
    url = f"http://127.0.0.1:{port}"
    return {"direct": Side(port), "mitmdump": mitmdump(stack, url, folder), "playhead": recorder(stack, url, folder)}


def mitmdump(stack: ExitStack, upstream: str, folder: Path) -> Side:
    """Plain mitmproxy of the same version with the least tap."""
    port, tap = free_port(), folder / "tap.py"
    tap.write_text(TAP)
    command = [str(Path(sys.executable).with_name("mitmdump")), "-q", "--mode", f"reverse:{upstream}@127.0.0.1:{port}", "-s", str(tap)]
    child = stack.enter_context(program(*command, "--set", f"confdir={folder / 'mitm'}", "--set", "connection_strategy=lazy"))
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return Side(port, child.pid)
        time.sleep(0.1)
    raise RuntimeError("mitmdump did not listen")


def recorder(stack: ExitStack, upstream: str, folder: Path) -> Side:
    """`playhead record`."""
    command = [sys.executable, "-m", "cli.main", "record", "--upstream", upstream, "--trace", str(folder / "overhead.trace"), "--json"]
    child = stack.enter_context(program(*command))
    assert child.stdout
    return Side(int(json.loads(child.stdout.readline())["url"].rpartition(":")[2]), child.pid)
