"""A server on loopback that answers each path with its own steps, and keeps what it was asked; in a thread of its own."""

import asyncio
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from faulty.steps import Peer, Step


@dataclass
class Asked:
    """One request as the server saw it: head as sent, body without transfer-encoding."""

    head: bytes
    body: bytes = b""
    trailers: bytes = b""
    pieces: list[int] = field(default_factory=list)

    @property
    def target(self) -> str:
        return self.head.split(b" ")[1].decode("latin-1")


class FaultyServer:
    """`answers`: path -> steps. `early`: paths answered before the body is read. `tls`: how it speaks TLS, if it does."""

    def __init__(self, answers: Mapping[str, Sequence[Step]], early: Sequence[str] = (), tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.hung_up = threading.Event()
        self.got_data = threading.Event()
        self._answers, self._early, self._tls = answers, early, tls
        self.loop = asyncio.new_event_loop()
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        self._server.close()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self.hung_up.set()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = Asked(await reader.readuntil(b"\r\n\r\n"))
        self.asked.append(asked)
        path = asked.target.partition("?")[0]
        if path not in self._early:
            await self._read_body(reader, asked)
        for step in self._answers[path]:
            await step(Peer(reader, writer))

    async def _read_body(self, reader: asyncio.StreamReader, asked: Asked) -> None:
        head = asked.head.lower()
        if b"transfer-encoding: chunked" in head:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                asked.body += await reader.readexactly(size)
                asked.pieces.append(size)
                self.got_data.set()
                await reader.readexactly(2)
            while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                asked.trailers += line
        elif b"content-length: " in head:
            left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while left:
                data = await reader.read(left)
                if not data:
                    raise ConnectionError
                asked.body += data
                left -= len(data)
                self.got_data.set()


@contextmanager
def serving(answers: Mapping[str, Sequence[Step]], early: Sequence[str] = (), tls: ssl.SSLContext | None = None) -> Iterator[FaultyServer]:
    """The server while it is needed."""
    server = FaultyServer(answers, early, tls)
    thread = threading.Thread(target=server.loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), server.loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), server.loop).result(10)
        server.loop.call_soon_threadsafe(server.loop.stop)
        thread.join(10)
        server.loop.close()


async def _end(server: FaultyServer) -> None:
    server.stop_listening()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)  # the closes that were asked for
