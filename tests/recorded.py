"""The real recorder in a thread of the test's own process: its proxy, its writer, a real trace; and a client that speaks bytes."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage import exchanges
from storage.records import Exchange
from storage.trace import Trace
from tracer import upstreams
from tracer.addon import Recorder
from tracer.proxy import Listener, Settings
from tracer.recording import record

LIMIT_S = 30.0


@dataclass
class Recording:
    """A recorder that runs. `exchanges()` ends it and gives all that it kept, in order."""

    trace: Trace
    urls: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    recorder: Recorder | None = None
    failure: BaseException | None = None
    _stop: Callable[[], Any] = lambda: None
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return self.urls[0]

    def stop(self) -> None:
        """Ends it as a signal would; raises what it raised."""
        self._stop()
        assert self._thread
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        if self.failure:
            raise self.failure

    def exchanges(self) -> list[Exchange]:
        self.stop()
        return [exchanges.load(self.trace, row.id) for row in exchanges.listing(self.trace, everything=True)]


@contextmanager
def recording(
    folder: Path, *given: str, drain_s: float = 2.0, stops_when_broken: bool = False, port: int = 0, **more: Any
) -> Iterator[Recording]:
    """A recorder in front of the upstreams given. `more`: of `Settings`."""
    with Trace.open(folder / "a.trace", create=True) as trace:
        running, ready = Recording(trace), threading.Event()

        async def until_stopped(listeners: tuple[Listener, ...], recorder: Recorder) -> None:
            loop, stop = asyncio.get_running_loop(), asyncio.Event()
            running._stop = lambda: None if loop.is_closed() else loop.call_soon_threadsafe(stop.set)
            running.urls, running.recorder = [each.url for each in listeners], recorder
            ready.set()
            await stop.wait()

        def run() -> None:
            settings = Settings(upstreams=upstreams.chosen(given), drain_s=drain_s, port=port, **more)
            work = record(trace, settings, until_stopped, tell=running.told.append, stops_when_broken=stops_when_broken)
            try:
                asyncio.run(work)
            except BaseException as wrong:  # whatever it is, the test must see it
                running.failure = wrong
            ready.set()

        running._thread = threading.Thread(target=run)
        running._thread.start()
        assert ready.wait(LIMIT_S)
        try:
            yield running
        finally:
            running._stop()
            running._thread.join(LIMIT_S)


def connect(url: str) -> socket.socket:
    """A connection to a listener."""
    place = urlsplit(url)
    return socket.create_connection((place.hostname, place.port), LIMIT_S)


def request(target: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = (), *, method: str = "POST") -> bytes:
    """The bytes of a request that asks for its connection to be closed afterwards."""
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers), "Connection: close"]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + body


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes or resets."""
    got = b""
    try:
        while data := connection.recv(65536):
            got += data
    except ConnectionError:
        pass
    return got


def ask(url: str, target: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = (), *, method: str = "POST") -> bytes:
    """One request on a connection of its own; all that came back, head and framing included."""
    with connect(url) as connection:
        connection.sendall(request(target, body, headers, method=method))
        return read_all(connection)


def body_of(answer: bytes) -> bytes:
    """The body of an answer's bytes, chunks joined."""
    head, _, rest = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return rest
    body = b""
    while rest and (size := int(rest.partition(b"\r\n")[0], 16)):
        rest = rest.partition(b"\r\n")[2]
        body, rest = body + rest[:size], rest[size + 2 :]
    return body
