"""Reads one side of a WebSocket as it passes (RFC 6455, RFC 7692): frames to messages, unmasked and inflated, with their times.

Pure and passive: it is fed what came, answers nothing and changes nothing. It does not know what messages mean, nor the other side.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

MOST_MESSAGE_BYTES = 64 << 20
"""So much of one message is kept; of a longer one the rest passes unkept."""

MOST_INFLATED_BYTES = 256 << 20
"""So much more than `USUAL_RATIO` times what came may be inflated: a message made to grow a thousandfold would keep the proxy busy."""

USUAL_RATIO = 256
"""What text that repeats itself deflates to at best; only bytes that are all alike do better."""

_STEP_BYTES = 1 << 20

_TAIL = b"\x00\x00\xff\xff"
"""Taken off the end of every deflated message (RFC 7692, 7.2.1)."""


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A whole message or control frame. `began_ns`: its first byte was there; `at_ns`: its last. `is_cut`: too long to be kept whole.

    `taken`: so many bytes of it were given before (`Unfinished.take`).
    """

    opcode: Opcode
    payload: bytes
    began_ns: int
    at_ns: int
    is_cut: bool = False
    taken: int = 0

    @property
    def rest(self) -> bytes:
        """What was not given before."""
        return self.payload[self.taken :]


class FrameError(ValueError):
    """These bytes are no WebSocket frames as negotiated: nothing behind them can be read."""


class Unfinished:
    """A message in the making."""

    __slots__ = ("began_ns", "content", "inflates", "is_cut", "opcode", "taken")

    def __init__(self, opcode: Opcode, began_ns: int, *, inflates: bool) -> None:
        self.opcode, self.began_ns, self.inflates = opcode, began_ns, inflates
        self.content = bytearray()
        """What has come of it, unmasked and inflated."""
        self.taken, self.is_cut = 0, False

    def take(self) -> bytes:
        """What has come since the last time."""
        fresh = bytes(memoryview(self.content)[self.taken :])
        self.taken = len(self.content)
        return fresh

    def add(self, data: bytes) -> None:
        room = MOST_MESSAGE_BYTES - len(self.content)
        self.is_cut |= len(data) > room
        if room > 0:
            self.content += data[:room]

    def message(self, at_ns: int) -> Message:
        payload = bytes(self.content)
        return Message(opcode=self.opcode, payload=payload, began_ns=self.began_ns, at_ns=at_ns, is_cut=self.is_cut, taken=self.taken)


class FrameReader:
    """One direction of one socket. `deflates`: permessage-deflate was negotiated."""

    def __init__(self, *, deflates: bool) -> None:
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS) if deflates else None
        self._waiting = bytearray()
        self._waiting_since_ns = 0
        self._inflatable_bytes = MOST_INFLATED_BYTES
        self._data: Unfinished | None = None
        self._now: Unfinished | None = None
        """Whose frame is being read: the message's, or that of a control frame between its fragments."""
        self._left = 0
        self._key = b""
        self._is_final = True

    def feed(self, at_ns: int, data: bytes) -> list[Message]:
        """What these bytes complete, in order. FrameError."""
        if not self._waiting:
            self._waiting_since_ns = at_ns
        self._waiting += data
        found: list[Message] = []
        while self._now is not None or self._head():
            self._take()
            if self._left:
                break
            if (message := self._end_of_frame(at_ns)) is not None:
                found.append(message)
            self._waiting_since_ns = at_ns
        return found

    @property
    def unfinished(self) -> Unfinished | None:
        """The message that is not whole yet; None between messages."""
        return self._data

    def _head(self) -> bool:
        """Takes the head of the next frame, if all of it is there."""
        waiting = self._waiting
        if len(waiting) < 2:
            return False
        size, extended = waiting[1] & 0x7F, 0
        if size >= 126:
            extended = 2 if size == 126 else 8
        masked = 4 if waiting[1] & 0x80 else 0
        if len(waiting) < 2 + extended + masked:
            return False
        self._left = int.from_bytes(waiting[2 : 2 + extended]) if extended else size
        self._key = bytes(waiting[2 + extended : 2 + extended + masked])
        self._is_final = bool(waiting[0] & 0x80)
        self._begin(waiting[0])
        del waiting[: 2 + extended + masked]
        return True

    def _begin(self, first: int) -> None:
        """Decides whose frame this is."""
        try:
            opcode = Opcode(first & 0x0F)
        except ValueError:
            raise FrameError(f"opcode {first & 0x0F} is not known") from None
        compressed = bool(first & 0x40)
        if first & 0x30 or (compressed and (self._inflater is None or opcode >= Opcode.CLOSE)):
            raise FrameError("an extension that was not negotiated")
        if opcode >= Opcode.CLOSE:
            if not self._is_final or self._left > 125:
                raise FrameError("a control frame that is too long or in pieces")
            self._now = Unfinished(opcode, self._waiting_since_ns, inflates=False)
            return
        if (self._data is None) == (opcode is Opcode.CONTINUATION):
            raise FrameError("a fragment out of place")
        if self._data is None:
            self._data = Unfinished(opcode, self._waiting_since_ns, inflates=compressed)
        self._now = self._data

    def _take(self) -> None:
        """Takes what is there of the frame's payload."""
        assert self._now is not None
        size = min(len(self._waiting), self._left)
        if not size:
            return
        piece = bytes(self._waiting[:size])
        del self._waiting[:size]
        self._left -= size
        if self._key:
            piece = _unmasked(piece, self._key)
            turn = size % 4
            self._key = self._key[turn:] + self._key[:turn]
        self._add(self._now, piece)

    def _end_of_frame(self, at_ns: int) -> Message | None:
        """The frame is whole; the message it completes, if it does."""
        done, self._now = self._now, None
        assert done is not None
        if done is not self._data:
            return done.message(at_ns)
        if not self._is_final:
            return None
        if done.inflates:
            self._add(done, _TAIL)
            self._renew()
        self._data = None
        return done.message(at_ns)

    def _add(self, message: Unfinished, piece: bytes) -> None:
        if not message.inflates:
            message.add(piece)
            return
        for part in self._inflated(piece):
            message.add(part)

    def _inflated(self, piece: bytes) -> Iterator[bytes]:
        """The piece in the clear, step by step: a little can be made to inflate to very much."""
        assert self._inflater is not None
        self._inflatable_bytes = min(MOST_INFLATED_BYTES, self._inflatable_bytes + USUAL_RATIO * len(piece))
        while not self._inflater.eof:
            try:
                part = self._inflater.decompress(piece, _STEP_BYTES)
            except zlib.error as wrong:
                raise FrameError(f"a message that does not inflate: {wrong}") from None
            yield part
            self._inflatable_bytes -= len(part)
            if self._inflatable_bytes < 0:
                raise FrameError("messages that inflate to very much more than they were")
            piece = self._inflater.unconsumed_tail
            if not piece and len(part) < _STEP_BYTES:
                return

    def _renew(self) -> None:
        """A message may end its deflate stream (RFC 7692, 7.2.3.5): the next one begins another."""
        assert self._inflater is not None
        if self._inflater.eof:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)


def _unmasked(data: bytes, key: bytes) -> bytes:
    """The data with its mask taken off: one XOR of two long numbers."""
    size = len(data)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(data) ^ int.from_bytes(mask)).to_bytes(size)


def close_text(payload: bytes) -> str:
    """A close frame's code and reason, as people write them; 1005: it named none (RFC 6455, 7.1.5)."""
    code = int.from_bytes(payload[:2]) if len(payload) >= 2 else 1005
    reason = payload[2:].decode("utf-8", "replace")
    return f"{code} {reason}".rstrip()
