"""Small things laid out in blobs come back as they were, and damaged blobs say so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import packing
from storage.packing import Codec

CODEC = Codec(b"a dictionary of phrases, phrases of a dictionary")
CHUNKS = st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**40)), max_size=30)


@given(CHUNKS)
def test_arrival_times_and_sizes_come_back(chunks: list[tuple[int, int]]) -> None:
    """Any order of times is kept: clocks of imported recordings may step back."""
    assert packing.unpack_chunks(packing.pack_chunks(chunks)) == tuple(chunks)


@given(st.lists(st.tuples(st.text(), st.text())))
def test_headers_come_back(headers: list[tuple[str, str]]) -> None:
    """Order, case, doubled names and any text are kept."""
    assert packing.unpack_headers(packing.pack_headers(tuple(headers))) == tuple(headers)


@given(st.binary(max_size=300), st.integers(1, 400))
def test_compressed_content_comes_back(content: bytes, times: int) -> None:
    """Small and large content alike."""
    assert CODEC.decompress(CODEC.compress(content * times)) == content * times


def test_regular_arrivals_are_small() -> None:
    """A stream of 500 reads takes a few hundred bytes."""
    chunks = [(1_000_000_000 + index * 20_000_000 + index % 7, 120 + index % 5) for index in range(500)]
    assert len(CODEC.compress(packing.pack_chunks(chunks))) < 700


@pytest.mark.parametrize("blob", [b"", b"not zstd", CODEC.compress(b"something")[:-2]])
def test_a_damaged_blob_is_a_value_error(blob: bytes) -> None:
    """Never bytes that were not stored."""
    with pytest.raises(ValueError, match="damaged"):
        CODEC.decompress(blob)


def test_numbers_that_end_too_early_are_a_value_error() -> None:
    """A varint without its last byte, times without sizes."""
    with pytest.raises(ValueError, match="too early"):
        packing.unpack_numbers(b"\x80")
    with pytest.raises(ValueError, match="pair"):
        packing.unpack_chunks(b"\x01\x02\x03")
    with pytest.raises(ValueError, match="too early"):
        packing.sized_bytes(b"\x05ab", 0)


def test_arrivals_must_sum_to_the_body() -> None:
    """A body is cut exactly, or not at all."""
    assert [piece.data for piece in packing.arrivals(((1, 2), (2, 0), (3, 1)), b"abc")] == [b"ab", b"", b"c"]
    with pytest.raises(ValueError, match="sum to 2 bytes, the body has 3"):
        packing.arrivals(((1, 2),), b"abc")
