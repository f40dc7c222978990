"""Frames to messages, however they are cut, masked and packed."""

import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websocket_ends import BINARY, CLOSE, PING, TEXT, Packer, closing

from tracer import frames
from tracer.frames import FrameError, FrameReader, Message, Opcode, close_text


def payloads(found: list[Message]) -> list[bytes]:
    return [message.payload for message in found]


@given(
    said=st.lists(st.tuples(st.sampled_from([TEXT, BINARY]), st.binary(max_size=400), st.integers(1, 4)), max_size=8),
    step=st.integers(1, 200),
    masks=st.booleans(),
    deflates=st.booleans(),
)
def test_what_is_said_is_read(said: list[tuple[int, bytes, int]], step: int, masks: bool, deflates: bool) -> None:
    """Whatever the fragments and the reads, every message comes out once, in order; a ping between fragments disturbs nothing."""
    packer, reader = Packer(masks=masks, deflates=deflates), FrameReader(deflates=deflates)
    ping = Packer(masks=masks).frames(b"still there?", PING)[0]
    wire = b"".join(ping.join(packer.frames(payload, opcode, pieces)) for opcode, payload, pieces in said)
    found = [message for at in range(0, len(wire), step) for message in reader.feed(at, wire[at : at + step])]
    messages = [(int(message.opcode), message.payload) for message in found if message.opcode is not Opcode.PING]
    assert messages == [(opcode, payload) for opcode, payload, _ in said]
    assert reader.unfinished is None


def test_a_message_begins_with_its_first_byte_and_ends_with_its_last() -> None:
    """The time of the read that brought the first byte, and of the one that brought the last."""
    one, two = Packer(masks=True).frames(b"one"), Packer(masks=True).frames(b"two" * 9, pieces=3)
    reader = FrameReader(deflates=False)
    assert reader.feed(10, one[0][:1]) == []
    (first,) = reader.feed(20, one[0][1:] + two[0])
    assert reader.unfinished
    assert reader.unfinished.content == b"two" * 3
    assert reader.feed(30, two[1]) == []
    (second,) = reader.feed(40, two[2])
    assert [(each.began_ns, each.at_ns) for each in (first, second)] == [(10, 20), (20, 40)]


def test_compression_keeps_its_context_and_may_begin_anew() -> None:
    """A later message is small because of an earlier one; a message may also end its deflate stream, and the next begins another."""
    packer, reader = Packer(masks=False, deflates=True), FrameReader(deflates=True)
    text = os.urandom(900)
    first, second = packer.frames(text)[0], packer.frames(text)[0]
    assert len(second) < 60 < len(first)
    assert payloads(reader.feed(0, first + second)) == [text, text]
    for _ in range(2):
        last = zlib.compressobj(wbits=-15)
        data = last.compress(b"an end") + last.flush() + b"\x00"
        assert payloads(FrameReader(deflates=True).feed(0, bytes([0xC1, len(data)]) + data)) == [b"an end"]
        assert payloads(reader.feed(0, bytes([0xC1, len(data)]) + data)) == [b"an end"]


def test_sixteen_megabytes_in_one_frame() -> None:
    """A large message is read piece by piece."""
    text = os.urandom(1 << 20) * 16
    (wire,) = Packer(masks=False).frames(text, BINARY)
    reader = FrameReader(deflates=False)
    found = [message for at in range(0, len(wire), 65535) for message in reader.feed(at, wire[at : at + 65535])]
    assert payloads(found) == [text]


def test_a_message_without_end_is_kept_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded; what follows is read as before."""
    monkeypatch.setattr(frames, "MOST_MESSAGE_BYTES", 10)
    packer = Packer(masks=True)
    wire = b"".join(packer.frames(b"0123456789abcdef", pieces=4)) + packer.frames(b"next")[0]
    long, short = FrameReader(deflates=False).feed(0, wire)
    assert (long.payload, long.is_cut, short.payload, short.is_cut) == (b"0123456789", True, b"next", False)


@pytest.mark.parametrize(
    ("wire", "deflates", "why"),
    [
        (b"\x83\x00", False, "opcode 3 is not known"),
        (b"\xc1\x00", False, "not negotiated"),
        (b"\xa1\x00", True, "not negotiated"),
        (b"\xc9\x00", True, "not negotiated"),
        (b"\x09\x00", False, "control frame"),
        (b"\x89\x7e\x00\x80", False, "control frame"),
        (b"\x80\x00", False, "out of place"),
        (b"\x01\x00\x81\x00", False, "out of place"),
        (b"\xc1\x03\xff\xff\xff", True, "does not inflate"),
    ],
)
def test_what_is_no_websocket_is_said_to_be_none(wire: bytes, deflates: bool, why: str) -> None:
    """Nothing is guessed behind bytes that cannot be."""
    with pytest.raises(FrameError, match=why):
        FrameReader(deflates=deflates).feed(0, wire)


def test_close_codes_read_as_words() -> None:
    """Code and reason; 1005 where there was none."""
    (message,) = FrameReader(deflates=False).feed(0, Packer(masks=True).frames(closing(1011, "out of memory"), CLOSE)[0])
    assert close_text(message.payload) == "1011 out of memory"
    assert (close_text(b""), close_text(closing(1000))) == ("1005", "1000")
