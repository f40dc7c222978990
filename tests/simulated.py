"""The simulated server in a thread of the test's own process, and a client that asks it over raw sockets."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from replay.simulator.prepare import Settings
from replay.simulator.server import serve_until
from replay.simulator.timing import Timing

FAST = Settings(timing=Timing(fixed_ns=1_000_000, prefill_tps=1e6, decode_tps=20_000))


@contextmanager
def running(settings: Settings = FAST) -> Iterator[int]:
    """A server in a thread of its own; its port."""
    ready: list[str] = []
    up = threading.Event()
    control: list[Callable[[], None]] = []

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        control.append(lambda: loop.call_soon_threadsafe(stop.set))

        def announce(url: str) -> None:
            ready.append(url)
            up.set()

        await serve_until(stop, settings, ("127.0.0.1", 0), announce)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert up.wait(20)
        yield int(ready[0].rsplit(":", 1)[1])
    finally:
        control[0]()
        thread.join(20)
        assert not thread.is_alive()


def head(method: str, target: str, body: bytes = b"", *lines: str) -> bytes:
    told = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *lines]
    return ("\r\n".join(told) + "\r\n\r\n").encode() + body


def read_answer(stream: Any) -> tuple[int, dict[str, str], list[bytes]]:
    """Status, headers and chunks of the next answer on a connection."""
    status = int(stream.readline().split()[1])
    headers: dict[str, str] = {}
    while line := stream.readline().strip().decode("latin-1"):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    if headers.get("transfer-encoding") != "chunked":
        return status, headers, [stream.read(int(headers.get("content-length", 0)))]
    chunks = []
    while size := int(stream.readline(), 16):
        chunks.append(stream.read(size))
        stream.readline()
    stream.readline()
    return status, headers, chunks


def ask(port: int, raw: bytes) -> tuple[int, dict[str, str], list[bytes]]:
    with socket.create_connection(("127.0.0.1", port), 10) as connection, connection.makefile("rb") as stream:
        connection.sendall(raw)
        return read_answer(stream)


def post(port: int, target: str, body: Any, *lines: str) -> tuple[int, dict[str, str], list[bytes]]:
    return ask(port, head("POST", target, json.dumps(body).encode(), *lines))
