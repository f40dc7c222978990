"""What a misbehaving server does, as small steps to put together: send, split, stall, cut, reset, trailers, 1xx heads, gzip, ..."""

import asyncio
import socket
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterable

from backports import zstd


class Peer:
    """The server's end of one connection, as the steps see it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


type Step = Callable[[Peer], Awaitable[None]]

SSE = (("Content-Type", "text/event-stream"),)


def send(data: bytes) -> Step:
    """These bytes in one write."""
    return lambda peer: peer.send(data)


def head(status: str = "200 OK", headers: Iterable[tuple[str, str]] = SSE, *, framing: str = "Transfer-Encoding: chunked") -> Step:
    """The head of an answer; `framing` empty: its body is read until close."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), *([framing] if framing else [])]
    return send("".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n")


def chunk(data: bytes) -> Step:
    """One HTTP chunk."""
    return send(b"%x\r\n%s\r\n" % (len(data), data))


def last(trailers: bytes = b"") -> Step:
    """The chunk that ends a body, with trailers."""
    return send(b"0\r\n" + trailers + b"\r\n")


def whole(body: bytes, status: str = "200 OK", kind: str = "application/json") -> Step:
    """An answer of known length."""
    return send(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def split(data: bytes, size: int) -> Step:
    """The same bytes in pieces of `size`, each a write of its own."""

    async def pieces(peer: Peer) -> None:
        for at in range(0, len(data), size):
            await peer.send(data[at : at + size])
            await asyncio.sleep(0)

    return pieces


def pause(seconds: float) -> Step:
    """Silence."""
    return lambda _: asyncio.sleep(seconds)


def wait_for(event: asyncio.Event) -> Step:
    """Silence until the test says so."""

    async def waited(_: Peer) -> None:
        await asyncio.wait_for(event.wait(), 30)

    return waited


async def until_gone(peer: Peer) -> None:
    """Silence until the other side hangs up."""
    while await peer.reader.read(65536):
        pass


async def cut(peer: Peer) -> None:
    """An orderly close, wherever in the answer it comes."""
    peer.writer.close()


async def reset(peer: Peer) -> None:
    """A close by a TCP reset."""
    peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.writer.transport.abort()


def gzipped(pieces: Iterable[bytes]) -> list[bytes]:
    """Each piece flushed, so that it can be read when it comes."""
    packer = zlib.compressobj(wbits=31)
    found = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*found, packer.flush()]


def zstandard(pieces: Iterable[bytes]) -> list[bytes]:
    """As `gzipped`, in zstd."""
    packer = zstd.ZstdCompressor()
    found = [packer.compress(piece, zstd.ZstdCompressor.FLUSH_BLOCK) for piece in pieces]
    return [*found, packer.flush(zstd.ZstdCompressor.FLUSH_FRAME)]
