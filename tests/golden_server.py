"""A small HTTP server in a thread of its own that sends what it is told, when it is told, and knows when it did."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

type Script = Callable[["Visitor"], None]


@dataclass
class Visitor:
    """One connection, as the server's script sees it."""

    socket: socket.socket
    head: bytes = b""
    body: bytes = b""
    sent_ns: list[int] = field(default_factory=list)

    def hear(self) -> bool:
        """Reads one request; False when the client has left."""
        buffer = b""
        while b"\r\n\r\n" not in buffer:
            piece = self.socket.recv(65536)
            if not piece:
                return False
            buffer += piece
        self.head, _, self.body = buffer.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in self.head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        while len(self.body) < length:
            self.body += self.socket.recv(65536)
        return True

    def say(self, data: bytes) -> None:
        """Sends at once and notes when."""
        self.sent_ns.append(time.monotonic_ns())
        self.socket.sendall(data)


@dataclass
class GoldenServer:
    """Serves each connection with the script, in order of their coming; `visitors` keeps what each asked."""

    script: Script
    visitors: list[Visitor] = field(default_factory=list)
    asked: list[tuple[bytes, bytes]] = field(default_factory=list)
    """(head, body) of every request."""
    tls: ssl.SSLContext | None = None
    pages: dict[str, bytes] = field(default_factory=dict)
    """What a GET of a path is answered with, JSON or text, without the script; else 404."""
    probed: list[tuple[str, bytes]] = field(default_factory=list)
    """(path, head) of every GET."""

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            client.settimeout(10)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                client = self.tls.wrap_socket(client, server_side=True) if self.tls else client
            except OSError:
                client.close()
                continue
            visitor = Visitor(client)
            self.visitors.append(visitor)
            thread = threading.Thread(target=self._serve, args=(visitor,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, visitor: Visitor) -> None:
        with visitor.socket:
            try:
                while visitor.hear():
                    if visitor.head.startswith(b"GET "):
                        self._page(visitor)
                        continue
                    self.asked.append((visitor.head, visitor.body))
                    self.script(visitor)
            except OSError:
                return

    def _page(self, visitor: Visitor) -> None:
        path = visitor.head.split(b" ")[1].decode()
        self.probed.append((path, visitor.head))
        body, status = self.pages.get(path, b"{}"), b"200 OK" if path in self.pages else b"404 Not Found"
        visitor.say(b"HTTP/1.1 %s\r\nServer: golden\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    @property
    def players(self) -> list[Visitor]:
        """The connections that carried more than GETs."""
        return [visitor for visitor in self.visitors if visitor.head and not visitor.head.startswith(b"GET ")]

    def close(self) -> None:
        """Stops listening and ends every connection; once is enough."""
        if self._listening.fileno() < 0:
            return
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for visitor in self.visitors:
            try:
                visitor.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join(5)


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None, pages: dict[str, bytes] | None = None) -> Iterator[GoldenServer]:
    """A golden server for the length of a with statement."""
    server = GoldenServer(script, tls=tls, pages=pages or {})
    try:
        yield server
    finally:
        server.close()


def chunked(*pieces: bytes, pause_s: float = 0.0) -> Script:
    """An event stream in chunks, each piece sent by itself."""

    def script(visitor: Visitor) -> None:
        visitor.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: s=1\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            time.sleep(pause_s)
            visitor.say(b"%x\r\n%s\r\n" % (len(piece), piece))
        visitor.say(b"0\r\n\r\n")

    return script
