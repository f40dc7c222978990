"""A connection whose reads and writes are stamped where they happen: in the event loop's own callbacks, below any HTTP.

It knows bytes and time, no HTTP. `data_received` runs as soon as the loop sees the socket readable, so a stamp does not wait for
whoever reads the pieces; that is what makes it as exact as a client on this machine can be (docs/reference/performance.md).
"""

import asyncio
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Read:
    """One raw read: what the kernel gave, HTTP framing inside, and the monotonic ns of it."""

    at_ns: int
    data: bytes


class StampedConnection(asyncio.Protocol):
    """One TCP (or TLS) connection. Reads queue up with their stamps until `read` takes them; `b""` is the end."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reads: deque[Read] = deque()
        self._wanted: asyncio.Future[None] | None = None
        self._lost_ns: int | None = None
        self.error: Exception | None = None
        self.sent_ns: int | None = None
        """When the last byte of the last `write` had been given to the kernel; None while some of it is still here."""
        self.used_ns = 0
        """The last time anything came or went."""
        self.writes = 0
        """How often `write` was called: how many requests it has carried."""

    # ---- called by the event loop --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection (and its TLS) is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.used_ns = time.monotonic_ns()
        transport.set_write_buffer_limits(high=0)  # so that resume_writing tells when the very last byte has left
        if (sock := transport.get_extra_info("socket")) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        """Stamps one raw read."""
        self.used_ns = time.monotonic_ns()
        self._reads.append(Read(self.used_ns, data))
        self._wake()

    def resume_writing(self) -> None:
        """All that was written has been given to the kernel."""
        self.sent_ns = self.used_ns = time.monotonic_ns()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side (or we) closed; `exc` says how when it was not clean."""
        self._lost_ns, self.error = time.monotonic_ns(), exc
        self._wake()

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    # ---- called by the sender ------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it can still be written to, and nothing unasked has come."""
        return self._transport is not None and self._lost_ns is None and not self._transport.is_closing() and not self._reads

    def write(self, data: bytes) -> None:
        """Hands all of `data` to the kernel, or as much as it takes now and the rest as soon as it can."""
        assert self._transport is not None
        self.sent_ns = None
        self.writes += 1
        self._transport.write(data)
        if self._transport.get_write_buffer_size() == 0:
            self.sent_ns = self.used_ns = time.monotonic_ns()

    async def read(self, silence_s: float) -> Read:
        """The next raw read in order; empty at the end of the stream. Raises TimeoutError after so much silence."""
        if not self._reads and self._lost_ns is None:
            self._wanted = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(silence_s):
                await self._wanted
        if self._reads:
            return self._reads.popleft()
        assert self._lost_ns is not None
        return Read(self._lost_ns, b"")

    def abort(self) -> None:
        """Closes at once: an answer under way is given up, TLS is not told farewell."""
        if self._transport is not None:
            self._transport.abort()


async def connect(host: str, port: int, tls: ssl.SSLContext | None, patience_s: float) -> StampedConnection:
    """An open connection, TLS done. Raises OSError (ssl.SSLError among them) or TimeoutError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(patience_s):
        _, connection = await loop.create_connection(StampedConnection, host, port, ssl=tls)
    return connection
