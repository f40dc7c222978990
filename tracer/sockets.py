"""One WebSocket on its way through: each `response.create` and what answers it becomes an exchange of its own.

What belongs to no response (other messages of both sides) stays with the exchange of the upgrade, which is open as long as the socket is.
It only looks: frames pass as they came, whatever it makes of them. It does not know mitmproxy, nor the store.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.records import FailureKind, Headers
from tracer.frames import FrameError, FrameReader, Message, Opcode, Unfinished, close_text
from tracer.stream import Stream
from tracer.wire.openai_responses.socket import ASKS, BEGINS, ENDS, leading_type, message_type, refusal_status, response_id
from tracer.wire.requests import header

ANSWERED = 200
"""Status of an answer on a socket, unless its first message is an error that names another. 101 is the upgrade's, and stands there:
whoever reads an answer's status asks whether the server answered or refused.
"""

CLOSE_HEADER = "x-playhead-websocket-close"
"""A line of ours behind the head of the upgrade's answer: the close codes of both sides."""

KEPT_BYTES = 4 << 20
"""So much is kept of each side's messages that belong to no response."""

KEPT_PIECES = 20_000
"""In so many pieces at most: each costs memory of its own."""

MOST_AWAITED = 64
"""So many responses are awaited at once; a server that says nothing known of any would let them pile up."""

MOST_ANSWER_BYTES = 512 << 20
"""So much of one answer is kept."""


type Put = Callable[[int, bytes], None]
"""Takes a piece of a message, with the time at which it came."""


@dataclass(slots=True)
class _Response:
    """A response that is awaited. `name`: its id, once told; `has_begun`: its `response.created` was there.

    `has_answered`: a first message was there whole.
    """

    stream: Stream
    name: str | None = None
    has_begun: bool = False
    has_answered: bool = False
    status: int = ANSWERED
    told_status: int | None = None
    size: int = 0


@dataclass(slots=True)
class _Side:
    """What one side says. `close`: code and reason of its close frame; `kept`, `pieces`: of its messages that belong to no response.

    `put`: takes what comes of the message under way; None: it has only begun, or is kept back until it is clear what it is.
    """

    name: str
    reader: FrameReader
    close: str | None = None
    kept: int = 0
    pieces: int = 0
    is_full: bool = field(default=False)
    put: Put | None = None


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
        self._asking: Stream | None = None
        """A `response.create` of which not all has come."""
        self._awaited: deque[_Response] = deque()
        self._answering: _Response | None = None
        """Whose answer the upstream's message under way is part of."""
        self._over: str | None = None
        """The response that an error has ended last."""
        self._is_lost = self._has_answers = False

    @property
    def open_responses(self) -> int:
        """Responses in flight."""
        return len(self._awaited) + (self._asking is not None)

    @property
    def _is_settled(self) -> bool:
        """Whether there was an answer, and nothing is under way."""
        return self._has_answers and not self.open_responses and not self._client.reader.unfinished and not self._upstream.reader.unfinished

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
            return
        if (begun := side.reader.unfinished) is not None:
            self._has_begun(side, begun)
            if side.put is not None and (piece := begun.take()):
                side.put(at_ns, piece)

    def lose(self, at_ns: int, why: str) -> None:
        """Nothing more of this socket can be kept: its exchanges end here, though the traffic goes on."""
        self._is_lost = True
        self._tell(f"a WebSocket goes on unrecorded: {why}")
        self._break_off(at_ns, FailureKind.INTERRUPTED, why)
        self._upgrade.assembler.fail(at_ns, FailureKind.INTERRUPTED, why)
        self._upgrade.finish(at_ns)

    def end(self, at_ns: int, kind: FailureKind, why: str) -> None:
        """The connection is over, or nobody looks any more.

        A socket that either side closed in words has not failed, nor one that its client left when all it had asked for was answered:
        agents do not say goodbye.
        """
        if self._is_lost:
            return
        is_settled = kind is FailureKind.CLIENT_LEFT and self._is_settled
        for side in (self._client, self._upstream):
            self._keep_back_no_more(side, at_ns)
        self._break_off(at_ns, kind, why)
        closes = "; ".join(f"{side.name} {side.close}" for side in (self._client, self._upstream) if side.close is not None)
        if closes:
            self._upgrade.assembler.head_line(CLOSE_HEADER, closes)
        if not (closes or is_settled) or kind is FailureKind.INTERRUPTED:
            self._upgrade.assembler.fail(at_ns, kind, why)
        self._upgrade.finish(at_ns)

    # ---- messages ----

    def _message(self, side: _Side, message: Message) -> None:
        if message.is_cut:
            self._tell(f"a message of the {side.name} on a WebSocket was too long to be kept whole")
        if message.opcode is Opcode.CLOSE:
            self._closed(side, message)
        elif message.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._said(side, message, message_type(message.payload))

    def _has_begun(self, side: _Side, begun: Unfinished) -> None:
        """A message of which some is there: decides who takes it as it comes, so that a recorder that is killed has it so far."""
        if side.put is not None or not begun.content:
            return
        called = leading_type(begun.content)
        if side is self._upstream:
            if called is not None or not self._may_begin_another:
                side.put = self._taking_answer(begun.began_ns, called or "")
        elif called is not None or begun.opcode is Opcode.BINARY:
            side.put = self._taking_request(begun.began_ns, called or "")

    def _said(self, side: _Side, message: Message, called: str) -> None:
        """A whole message: what is left of it, and what follows from it."""
        if side is self._upstream:
            self._answer(message, called)
            return
        put, side.put = side.put or self._taking_request(message.began_ns, called), None
        put(message.at_ns, message.rest)
        if self._asking is not None:
            self._asked(message.at_ns, self._asking)

    def _line(self, side: _Side, put: Put) -> Put:
        """What takes a message of no response: a line of one of the upgrade's bodies, as long as there is room."""
        begin = b"\n" if side.kept else b""

        def put_line(at_ns: int, data: bytes) -> None:
            nonlocal begin
            if side.is_full or side.kept + len(begin + data) > KEPT_BYTES or side.pieces >= KEPT_PIECES:
                if not side.is_full:
                    self._tell(f"messages of the {side.name} on a WebSocket that belong to no response are no longer kept: too many")
                side.is_full = True
                return
            side.kept, side.pieces = side.kept + len(begin + data), side.pieces + 1
            put(at_ns, begin + data)
            begin = b""

        return put_line

    # ---- what the client says ----

    def _taking_request(self, began_ns: int, called: str) -> Put:
        """What takes a message of the client that has begun: a request, or a line of no response."""
        if called != ASKS:
            return self._line(self._client, self._upgrade.request_data)
        self._asking = self._begin(began_ns)
        return self._asking.request_data

    def _asked(self, at_ns: int, asking: Stream) -> None:
        """A request is whole: its answer is awaited."""
        asking.request_end(at_ns)
        self._asking = None
        self._awaited.append(_Response(asking))
        if len(self._awaited) > MOST_AWAITED:
            self._tell(f"more than {MOST_AWAITED} responses of a WebSocket are awaited: the first is given up")
            self._awaited.popleft().stream.finish(at_ns)

    # ---- what the upstream says ----

    def _taking_answer(self, at_ns: int, called: str) -> Put:
        """What takes a message of the upstream that has begun. It answers one response after the other; one that begins while the last
        has not ended in words ends that."""
        if called == BEGINS and self._may_begin_another:
            self._awaited.popleft().stream.finish(at_ns)
        if not self._awaited:
            return self._line(self._upstream, self._upgrade.response_data)
        now = self._answering = self._awaited[0]
        now.has_begun |= called == BEGINS
        begin = b"\n" if now.stream.assembler.has_response_head else b""

        def put_answer(at_ns: int, data: bytes) -> None:
            nonlocal begin
            self._arrive(now, at_ns, begin + data)
            begin = b""

        return put_answer

    @property
    def _may_begin_another(self) -> bool:
        """Whether the next message may belong to another response than those before it."""
        return len(self._awaited) > 1 and self._awaited[0].has_begun

    def _answer(self, message: Message, called: str) -> None:
        """A whole message. Behind an error the response that it ended may be told once more to have failed: that ends no other."""
        if self._upstream.put is None and called in ENDS and self._over is not None and response_id(message.payload) == self._over:
            self._line(self._upstream, self._upgrade.response_data)(message.at_ns, message.payload)
            return
        put, self._upstream.put = self._upstream.put or self._taking_answer(message.at_ns, called), None
        now, self._answering = self._answering, None
        if now is not None and called == "error" and not now.has_answered:
            now.status = refusal_status(message.payload) or ANSWERED
        put(message.at_ns, message.rest)
        if now is None:
            return
        now.has_answered = True
        if called == BEGINS:
            now.name = response_id(message.payload)
        if called not in ENDS:
            return
        self._has_answers, self._over = True, now.name if called == "error" else None
        if self._awaited and self._awaited[0] is now:
            self._awaited.popleft().stream.finish(message.at_ns)

    def _arrive(self, now: _Response, at_ns: int, data: bytes) -> None:
        """Some of an answer. Its first message says how the server took the request, once that is whole."""
        stream = now.stream
        if stream.assembler.has_ended:
            return
        if now.told_status != now.status:
            now.told_status = now.status
            stream.response_head(at_ns, now.status, self._head)
        now.size += len(data)
        if now.size > MOST_ANSWER_BYTES:
            self._tell("an answer on a WebSocket was too long to be kept whole")
            stream.assembler.fail(at_ns, FailureKind.INTERRUPTED, "the answer was too long to be kept whole")
            stream.finish(at_ns)
            return
        if data:
            stream.response_data(at_ns, data)

    # ---- the end ----

    def _keep_back_no_more(self, side: _Side, at_ns: int) -> None:
        """What was kept back of a message that will not be whole."""
        begun = side.reader.unfinished
        if begun is None or side.put is not None or not begun.content:
            return
        put = self._taking_answer(at_ns, "") if side is self._upstream else self._taking_request(begun.began_ns, "")
        put(at_ns, begun.take())

    def _closed(self, side: _Side, message: Message) -> None:
        """A close frame: who sends the first one ends what is in flight."""
        side.close = side.close or self._mask(close_text(message.payload))
        kind = FailureKind.CLIENT_LEFT if side is self._client else FailureKind.SERVER_CUT
        self._break_off(message.at_ns, kind, f"the {side.name} closed the socket: {side.close}")

    def _break_off(self, at_ns: int, kind: FailureKind, why: str) -> None:
        """Nothing more will be asked, nor answer what is in flight."""
        streams = [response.stream for response in self._awaited]
        if self._asking is not None:
            streams.append(self._asking)
        self._awaited.clear()
        self._asking = None
        for stream in streams:
            stream.assembler.fail(at_ns, kind, why)
            stream.finish(at_ns)
