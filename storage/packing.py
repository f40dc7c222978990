"""How small things are laid out in the trace's blobs: numbers, arrivals, headers, and the one compression all blobs share.

Pure. It does not know tables. Every blob of a trace is a zstd frame made with the trace's own dictionary (kept in `meta`).
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING

import orjson

from storage.records import Arrival, Headers, ToolTime

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

_LEVEL_SMALL, _LEVEL_LARGE, _LARGE_BYTES = 12, 3, 64 << 10
"""New content is small and kept for ever: worth a slow level. A body kept whole can be megabytes, and the writer must keep up."""


class Codec:
    """Compresses and decompresses the blobs of one trace. Safe to use from several threads."""

    def __init__(self, dictionary: bytes) -> None:
        self._dictionary = zstd.ZstdDict(dictionary, is_raw=True)
        self._small = zstd.ZstdCompressor(level=_LEVEL_SMALL, zstd_dict=self._dictionary)
        self._large = zstd.ZstdCompressor(level=_LEVEL_LARGE, zstd_dict=self._dictionary)
        self._lock = Lock()

    def compress(self, content: bytes) -> bytes:
        """One zstd frame."""
        with self._lock:
            compressor = self._small if len(content) < _LARGE_BYTES else self._large
            return compressor.compress(content, compressor.FLUSH_FRAME)

    def decompress(self, blob: bytes) -> bytes:
        """The content again; ValueError when the blob is damaged."""
        try:
            return zstd.decompress(blob, self._dictionary)
        except (zstd.ZstdError, TypeError) as error:  # TypeError: no blob at all
            raise ValueError(f"a compressed blob is damaged: {error}") from error


def put_varint(out: bytearray, number: int) -> None:
    """Appends a number >= 0 as LEB128."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def varint(blob: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and where the next thing begins; IndexError when the blob ends inside it."""
    number = shift = 0
    while True:
        byte = blob[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def put_bytes(out: bytearray, content: bytes) -> None:
    """Appends a length and that many bytes."""
    put_varint(out, len(content))
    out += content


def sized_bytes(blob: bytes, at: int) -> tuple[bytes, int]:
    """The bytes written by `put_bytes` and where the next thing begins; ValueError when the blob ends inside them."""
    size, at = varint(blob, at)
    if at + size > len(blob):
        raise ValueError("a blob ends too early")
    return blob[at : at + size], at + size


def pack_numbers(numbers: Iterable[int]) -> bytes:
    """Numbers >= 0, one varint each."""
    out = bytearray()
    for number in numbers:
        put_varint(out, number)
    return bytes(out)


def unpack_numbers(blob: bytes) -> list[int]:
    """The numbers of `pack_numbers`; ValueError when the blob ends inside one."""
    numbers, at = [], 0
    try:
        while at < len(blob):
            number, at = varint(blob, at)
            numbers.append(number)
    except IndexError:
        raise ValueError("a blob ends too early") from None
    return numbers


def zigzag(number: int) -> int:
    """A signed number as an unsigned one: small stays small."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unzigzag(number: int) -> int:
    """The signed number again."""
    return -(number >> 1) - 1 if number & 1 else number >> 1


def pack_chunks(chunks: Sequence[tuple[int, int]]) -> bytes:
    """(at_ns, size) of each arrival: all time steps (signed: clocks of imports may step back), then all sizes."""
    steps = [zigzag(at_ns - before) for before, at_ns in zip((0, *(at for at, _ in chunks)), (at for at, _ in chunks), strict=False)]
    return pack_numbers([*steps, *(size for _, size in chunks)])


def unpack_chunks(blob: bytes) -> tuple[tuple[int, int], ...]:
    """(at_ns, size) of each arrival; ValueError when the blob is damaged."""
    numbers = unpack_numbers(blob)
    if len(numbers) % 2:
        raise ValueError("arrivals: times and sizes do not pair")
    half = len(numbers) // 2
    return tuple(zip(accumulate(map(unzigzag, numbers[:half])), numbers[half:], strict=True))


def arrivals(chunks: Sequence[tuple[int, int]], body: bytes) -> tuple[Arrival, ...]:
    """The body cut into its arrivals; ValueError when the sizes do not sum to it."""
    found, at = [], 0
    for at_ns, size in chunks:
        found.append(Arrival(at_ns, body[at : at + size]))
        at += size
    if at != len(body):
        raise ValueError(f"arrivals sum to {at} bytes, the body has {len(body)}")
    return tuple(found)


def pack_headers(headers: Headers) -> bytes:
    """Headers as JSON text, order and case kept."""
    return orjson.dumps(headers)


def unpack_headers(blob: bytes) -> Headers:
    """The headers again; ValueError when the blob is damaged."""
    try:
        return tuple((name, value) for name, value in orjson.loads(blob))
    except (ValueError, TypeError) as error:
        raise ValueError(f"headers are damaged: {error}") from error


def pack_ids(ids: Sequence[int]) -> str | None:
    """Exchange ids as text with commas; None for none."""
    return ",".join(map(str, ids)) if ids else None


def pack_tools(tools: Sequence[ToolTime]) -> str | None:
    """Times of tool calls as JSON; None for none."""
    if not tools:
        return None
    rows = [{"call": tool.call_id, "name": tool.name, "ms": tool.took_ns / 1e6, "source": tool.source} for tool in tools]
    return orjson.dumps(rows).decode()


def unpack_tools(text: str | None) -> tuple[ToolTime, ...]:
    """The times again; ValueError when the text is damaged."""
    try:
        rows = orjson.loads(text) if text else ()
        return tuple(ToolTime(row["call"], row["name"], round(row["ms"] * 1e6), row["source"]) for row in rows)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"times of tools are damaged: {error}") from error
