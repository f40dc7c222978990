"""Removes HTTP content encodings (gzip, deflate, br, zstd, chains of them), whole or piece by piece.

A body cut short gives what can be had. What unpacks to more than `LIMIT_BYTES` is refused. Knows codings, nothing of the content.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import brotli  # type: ignore[import-untyped]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT_BYTES = 512 << 20
"""Most bytes that one body may unpack to: far above any real body, far below what a bomb asks for."""
_STEP_BYTES = 1 << 20
_MOST_CODINGS = 4


class UndecodableError(ValueError):
    """The bytes are not in the coding they claim, or unpack beyond the limit."""


class _Coding(Protocol):
    def feed(self, data: bytes, limit: int) -> bytes: ...


class _Restarting:
    """A coding whose members may follow each other (gzip, zstd): a fresh decompressor for each; other bytes behind are ignored."""

    def __init__(self, fresh: Callable[[], Any], magic: bytes) -> None:
        self._fresh, self._magic = fresh, magic
        self._inner = fresh()
        self._rest = b""

    def feed(self, data: bytes, limit: int) -> bytes:
        out: list[bytes] = []
        size, full = 0, False
        data, self._rest = self._rest + data, b""
        while (data or full) and size <= limit:
            if self._inner.eof:
                if not data.startswith(self._magic):
                    self._rest = data if self._magic.startswith(data) else b""
                    break
                self._inner = self._fresh()
            piece, data = self._step(data)
            full = len(piece) == _STEP_BYTES
            out.append(piece)
            size += len(piece)
        return b"".join(out)

    def _step(self, data: bytes) -> tuple[bytes, bytes]:
        """One bounded piece of text, and the bytes still to be unpacked."""
        piece = self._inner.decompress(data, _STEP_BYTES)
        if self._inner.eof:
            return piece, self._inner.unused_data
        return piece, getattr(self._inner, "unconsumed_tail", b"")


class _Deflate:
    """`deflate` is zlib by the book, and raw deflate from servers that misread it: the first two bytes decide (RFC 9110, 8.4.1.2)."""

    def __init__(self) -> None:
        self._head = b""
        self._inner: Any = None

    def feed(self, data: bytes, limit: int) -> bytes:
        if self._inner is None:
            self._head += data
            if len(self._head) < 2:
                return b""
            zlib_head = self._head[0] & 0x0F == 8 and int.from_bytes(self._head[:2]) % 31 == 0
            self._inner = zlib.decompressobj(zlib.MAX_WBITS if zlib_head else -zlib.MAX_WBITS)
            data = self._head
        piece: bytes = self._inner.decompress(data, limit + 1)
        return piece


class _Brotli:
    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def feed(self, data: bytes, limit: int) -> bytes:
        if self._inner.is_finished():
            return b""
        out = [self._inner.process(data, output_buffer_limit=_STEP_BYTES)]
        size = len(out[0])
        # it says that it can accept more while a full piece is still waiting: only a short piece says that all came out
        while len(out[-1]) >= _STEP_BYTES and size <= limit:
            out.append(self._inner.process(b"", output_buffer_limit=_STEP_BYTES))
            size += len(out[-1])
        return b"".join(out)


def _gzip() -> _Coding:
    return _Restarting(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16), b"\x1f\x8b")


def _zstd() -> _Coding:
    return _Restarting(zstd.ZstdDecompressor, b"\x28\xb5\x2f\xfd")


_CODINGS: dict[str, Callable[[], _Coding]] = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _Deflate, "br": _Brotli, "zstd": _zstd}


def codings(encoding: str | None) -> tuple[str, ...]:
    """The codings named by a Content-Encoding value, in the order they were applied; `identity` left out."""
    names = (name.strip().lower() for name in (encoding or "").split(","))
    return tuple(name for name in names if name and name != "identity")


class Decoder:
    """Unpacks piece by piece. `broken` turns true, and nothing more comes out, when the bytes cannot be unpacked."""

    def __init__(self, encoding: str | None, *, limit_bytes: int = LIMIT_BYTES) -> None:
        names = codings(encoding)
        self.broken = len(names) > _MOST_CODINGS or any(name not in _CODINGS for name in names)
        self._stages = [] if self.broken else [_CODINGS[name]() for name in reversed(names)]
        self._left = limit_bytes

    def feed(self, data: bytes) -> bytes:
        """What this piece adds to the text."""
        if self.broken:
            return b""
        try:
            for stage in self._stages:
                data = stage.feed(data, self._left)
                if len(data) > self._left:
                    raise UndecodableError("unpacks beyond the limit")
        except (UndecodableError, zlib.error, zstd.ZstdError, brotli.error, EOFError):
            self.broken = True
            return b""
        self._left -= len(data)
        return data


def decode(body: bytes, encoding: str | None, *, limit_bytes: int = LIMIT_BYTES) -> bytes | None:
    """The body without its content encoding; of a body cut short what is there; None when it cannot be unpacked."""
    if not codings(encoding):
        return body
    decoder = Decoder(encoding, limit_bytes=limit_bytes)
    text = decoder.feed(body)
    return None if decoder.broken else text
