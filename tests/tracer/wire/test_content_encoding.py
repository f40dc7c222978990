"""Content encodings are removed, whole or piece by piece, and bombs are refused."""

import gzip
import sys
import zlib

import brotli  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.wire.content_encoding import Decoder, codings, decode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b"".join(b"data: %d squared is %d\n\n" % (n, n * n) for n in range(500))


def raw_deflate(text: bytes) -> bytes:
    """Deflate without zlib's head, as some servers send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(text) + packer.flush()


PACKED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "Deflate ": raw_deflate(TEXT),
    "br": brotli.compress(TEXT),
    "zstd": zstd.compress(TEXT),
    "gzip, zstd": zstd.compress(gzip.compress(TEXT)),
    "identity": TEXT,
    "": TEXT,
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_is_unpacked(encoding: str) -> None:
    """Whole, and byte by byte."""
    assert decode(PACKED[encoding], encoding) == TEXT
    decoder = Decoder(encoding)
    assert b"".join(decoder.feed(PACKED[encoding][at : at + 1]) for at in range(len(PACKED[encoding]))) == TEXT
    assert not decoder.broken


@pytest.mark.parametrize("encoding", [name for name in PACKED if name])
def test_a_body_cut_short_gives_what_is_there(encoding: str) -> None:
    """A truncated upload or stream is read as far as it goes."""
    got = decode(PACKED[encoding][:-20], encoding)
    assert got is not None
    assert TEXT.startswith(got)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_flushed_pieces_come_out_as_they_come_in(encoding: str) -> None:
    """The time of an event in a packed stream is that of its piece."""
    pieces = {
        "gzip": _flushed(zlib.compressobj(wbits=31)),
        "deflate": _flushed(zlib.compressobj()),
        "br": _brotli_flushed(),
        "zstd": _zstd_flushed(),
    }[encoding]
    decoder = Decoder(encoding)
    assert [decoder.feed(piece) for piece in pieces] == [b"data: one\n\n", b"data: two\n\n"]


def _flushed(packer: "zlib._Compress") -> list[bytes]:
    return [packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH) for text in (b"data: one\n\n", b"data: two\n\n")]


def _brotli_flushed() -> list[bytes]:
    packer = brotli.Compressor()
    return [packer.process(text) + packer.flush() for text in (b"data: one\n\n", b"data: two\n\n")]


def _zstd_flushed() -> list[bytes]:
    packer = zstd.ZstdCompressor()
    return [packer.compress(text, packer.FLUSH_BLOCK) for text in (b"data: one\n\n", b"data: two\n\n")]


def test_members_may_follow_each_other() -> None:
    """gzip members and zstd frames are one text, cut anywhere; what else stands behind them is ignored."""
    for encoding, two in (("gzip", gzip.compress(b"one") + gzip.compress(b"two")), ("zstd", zstd.compress(b"one") + zstd.compress(b"two"))):
        assert decode(two, encoding) == b"onetwo"
        assert decode(two + b"\0\0\0", encoding) == b"onetwo"
        for cut in range(len(two)):
            decoder = Decoder(encoding)
            assert decoder.feed(two[:cut]) + decoder.feed(two[cut:]) == b"onetwo"


@pytest.mark.parametrize(
    ("encoding", "bomb"),
    [
        ("gzip", gzip.compress(bytes(1 << 24))),
        ("deflate", zlib.compress(bytes(1 << 24))),
        ("br", brotli.compress(bytes(1 << 24))),
        ("zstd", zstd.compress(bytes(1 << 24))),
        ("gzip, gzip", gzip.compress(gzip.compress(bytes(1 << 24)))),
    ],
)
def test_a_bomb_is_refused(encoding: str, bomb: bytes) -> None:
    """What unpacks beyond the limit gives nothing; within the limit it unpacks."""
    assert decode(bomb, encoding, limit_bytes=1 << 22) is None
    assert decode(bomb, encoding, limit_bytes=1 << 25) == bytes(1 << 24)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "compress", "gzip,gzip,gzip,gzip,gzip"])
def test_what_is_not_in_its_coding_is_none(encoding: str) -> None:
    """Also an unknown coding, and a chain longer than anyone sends."""
    assert decode(b'{"model": "plain after all, and long enough to notice"}', encoding) is None


def test_names_of_codings() -> None:
    """In order, lower case, identity left out."""
    assert codings(" GZip , identity,BR") == ("gzip", "br")
    assert codings(None) == ()


@given(st.binary(), st.sampled_from([*PACKED, "br, gzip", "nonsense"]))
def test_no_bytes_raise(body: bytes, encoding: str) -> None:
    """Nor do they once broken."""
    decode(body, encoding)
    decoder = Decoder(encoding)
    decoder.feed(body)
    decoder.feed(body)
