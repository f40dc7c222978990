"""One WebSocket on its way through: each `response.create` and what answers it becomes an exchange of its own.

What belongs to no response (other messages of both sides) stays with the exchange of the upgrade, which is open as long as the socket is.
It only looks: frames pass as they came, whatever it makes of them. It does not know mitmproxy, nor the store.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.records import FailureKind, Headers
from tracer.frames import FrameError, FrameReader, Message, Opcode, close_text
from tracer.stream import Stream
from tracer.wire.openai_responses.socket import ASKS, BEGINS, ENDS, message_type, refusal_status
from tracer.wire.requests import header

ANSWERED = 200
"""Status of an answer on a socket, unless its first message is an error that names another. 101 is the upgrade's, and stands there:
whoever reads an answer's status asks whether the server answered or refused.
"""

CLOSE_HEADER = "x-playhead-websocket-close"
"""A line of ours behind the head of the upgrade's answer: the close codes of both sides."""

KEPT_BYTES = 4 << 20
"""So much is kept of each side's messages that belong to no response."""


@dataclass(slots=True)
class _Response:
    """A response that is awaited. `has_begun`: its `response.created` was there."""

    stream: Stream
    has_begun: bool = False


@dataclass(slots=True)
class _Side:
    """What one side says. `close`: code and reason of its close frame; `kept`: bytes of its messages that belong to no response."""

    name: str
    reader: FrameReader
    close: str | None = None
    kept: int = 0
    is_full: bool = field(default=False)


class Socket:
    """`upgrade`: the exchange of the upgrade, answered with 101. `begin(at_ns)`: a new exchange with that one's head.

    `tell` says what could not be kept; `mask` hides secrets in a text.
    """

    def __init__(self, upgrade: Stream, begin: Callable[[int], Stream], *, tell: Callable[[str], None], mask: Callable[[str], str]) -> None:
        response = upgrade.assembler.exchange().response
        self._head: Headers = response.headers if response else ()
        deflates = "permessage-deflate" in (header(self._head, "sec-websocket-extensions") or "")
        self._client = _Side("client", FrameReader(deflates=deflates))
        self._upstream = _Side("upstream", FrameReader(deflates=deflates))
        self._upgrade, self._begin, self._tell, self._mask = upgrade, begin, tell, mask
        self._awaited: deque[_Response] = deque()
        self._is_lost = False

    @property
    def open_responses(self) -> int:
        """Responses in flight."""
        return len(self._awaited)

    def passed(self, at_ns: int, data: bytes, *, from_client: bool) -> None:
        """Bytes that one side sent. What cannot be read as frames is told once, and passes unkept from there on."""
        if self._is_lost:
            return
        side = self._client if from_client else self._upstream
        try:
            for message in side.reader.feed(at_ns, data):
                self._message(side, message)
        except FrameError as wrong:
            self.lose(at_ns, f"the frames of the {side.name} cannot be read: {wrong}")

    def lose(self, at_ns: int, why: str) -> None:
        """Nothing more of this socket can be kept: its exchanges end here, though the traffic goes on."""
        self._is_lost = True
        self._tell(f"a WebSocket goes on unrecorded: {why}")
        self._break_off(at_ns, FailureKind.INTERRUPTED, why)
        self._upgrade.assembler.fail(at_ns, FailureKind.INTERRUPTED, why)
        self._upgrade.finish(at_ns)

    def end(self, at_ns: int, kind: FailureKind, why: str) -> None:
        """The connection is over, or nobody looks any more. A socket that either side closed in words has not failed."""
        if self._is_lost:
            return
        self._keep_unfinished(at_ns)
        self._break_off(at_ns, kind, why)
        closes = "; ".join(f"{side.name} {side.close}" for side in (self._client, self._upstream) if side.close is not None)
        if closes:
            self._upgrade.assembler.head_line(CLOSE_HEADER, closes)
        if not closes or kind is FailureKind.INTERRUPTED:
            self._upgrade.assembler.fail(at_ns, kind, why)
        self._upgrade.finish(at_ns)

    def _message(self, side: _Side, message: Message) -> None:
        if message.is_cut:
            self._tell(f"a message of the {side.name} on a WebSocket was too long to be kept whole")
        if message.opcode is Opcode.CLOSE:
            self._closed(side, message)
        elif message.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._said(side, message, message_type(message.payload))

    def _said(self, side: _Side, message: Message, called: str) -> None:
        if side is self._client and called == ASKS:
            self._ask(message)
        elif side is self._upstream and self._awaited:
            self._answer(message, called)
        else:
            self._keep(side, message.at_ns, message.payload)

    def _ask(self, message: Message) -> None:
        stream = self._begin(message.began_ns)
        stream.request_data(message.at_ns, message.payload)
        stream.request_end(message.at_ns)
        self._awaited.append(_Response(stream))

    def _answer(self, message: Message, called: str) -> None:
        """A server answers one response after the other; one that begins while the last has not ended in words ends that."""
        if called == BEGINS and self._awaited[0].has_begun and len(self._awaited) > 1:
            self._awaited.popleft().stream.finish(message.at_ns)
        now = self._awaited[0]
        now.has_begun |= called == BEGINS
        status = refusal_status(message.payload) if called == "error" else None
        self._arrive(now.stream, message.at_ns, message.payload, status or ANSWERED)
        if called in ENDS:
            self._awaited.popleft().stream.finish(message.at_ns)

    def _arrive(self, stream: Stream, at_ns: int, payload: bytes, status: int = ANSWERED) -> None:
        """One message of an answer: a line of its body. The first one says how the server took the request."""
        if not stream.assembler.has_response_head:
            stream.response_head(at_ns, status, self._head)
            stream.response_data(at_ns, payload)
        else:
            stream.response_data(at_ns, b"\n" + payload)

    def _keep(self, side: _Side, at_ns: int, payload: bytes) -> None:
        """A message of no response: a line of the upgrade's bodies, as long as there is room."""
        line = b"\n" + payload if side.kept else payload
        if side.is_full or side.kept + len(line) > KEPT_BYTES:
            if not side.is_full:
                self._tell(f"messages of the {side.name} on a WebSocket that belong to no response are no longer kept: there are too many")
            side.is_full = True
            return
        side.kept += len(line)
        if side is self._client:
            self._upgrade.request_data(at_ns, line)
        else:
            self._upgrade.response_data(at_ns, line)

    def _keep_unfinished(self, at_ns: int) -> None:
        """What had come of a message that will not be whole."""
        if (rest := self._upstream.reader.unfinished) and self._awaited:
            self._arrive(self._awaited[0].stream, at_ns, rest)
        elif rest:
            self._keep(self._upstream, at_ns, rest)
        if rest := self._client.reader.unfinished:
            self._keep(self._client, at_ns, rest)

    def _closed(self, side: _Side, message: Message) -> None:
        """A close frame: who sends the first one ends what is in flight."""
        side.close = side.close or self._mask(close_text(message.payload))
        kind = FailureKind.CLIENT_LEFT if side is self._client else FailureKind.SERVER_CUT
        self._break_off(message.at_ns, kind, f"the {side.name} closed the socket: {side.close}")

    def _break_off(self, at_ns: int, kind: FailureKind, why: str) -> None:
        """Nothing more will answer what is in flight."""
        while self._awaited:
            stream = self._awaited.popleft().stream
            stream.assembler.fail(at_ns, kind, why)
            stream.finish(at_ns)
