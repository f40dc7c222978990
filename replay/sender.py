"""Sends one prepared request over a stamped connection and hears the answer out.

HTTP/1.1 by h11, which does no I/O: the request is bytes before its time comes, so that between the start and the write there is one
system call; the answer is taken apart as it comes but for its meaning. Proxies in the environment are not looked at, no redirect is
followed, nothing is retried but this: a request that meets a connection which its server was closing is sent once more (`send`). It does
not know dialects, plans or the trace.
"""

import asyncio
import os
import ssl
import time
from dataclasses import dataclass, field, replace
from functools import cache
from urllib.parse import urlsplit

import h11

from replay.stamping import Read, StampedConnection, connect
from storage.errors import TargetError
from storage.records import Exchange, FailureKind, Headers, Request
from tracer.assembler import Assembler
from tracer.clock import Clock

CONNECT_PATIENCE_S = 10.0
SILENCE_S = 3600.0
"""Long reasoning sends nothing for a long time; a target is given up only after as much silence as the recorder allows."""
IDLE_NS = 4_000_000_000
"""Idle for longer, a connection is not used again: common servers close theirs after 5 s, and a request sent into that closing is lost."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request as bytes on the wire, and the protocol state that will read its answer."""

    wire: bytes
    protocol: h11.Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """All that was seen of one exchange, in monotonic ns. `pieces` are body bytes by the raw read that completed them."""

    start_ns: int
    sent_ns: int | None
    end_ns: int
    status: int | None = None
    headers: Headers = ()
    head_ns: int = 0
    pieces: tuple[Read, ...] = ()
    failure: tuple[FailureKind, str] | None = None
    reconnected: bool = False
    """Sent twice: the first connection was closed before any of the answer came. All stamps are of the second sending."""


def message(request: Request) -> Message:
    """The request as HTTP/1.1 bytes: the given headers in order and case, the host first, the length last.

    Raises ValueError, without the words that are at fault: they may be a key.
    """
    try:
        return _message(request)
    except (h11.LocalProtocolError, UnicodeError):
        raise ValueError("its address or a header holds characters that HTTP cannot carry") from None


def _message(request: Request) -> Message:
    parts = urlsplit(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [("Host", parts.netloc), *request.headers, ("Content-Length", str(len(request.body)))]
    protocol = h11.Connection(h11.CLIENT)
    head = protocol.send(h11.Request(method=request.method, target=target.encode("latin-1"), headers=_encoded(lines)))
    body = protocol.send(h11.Data(request.body)) or b""
    end = protocol.send(h11.EndOfMessage()) or b""
    return Message(wire=(head or b"") + body + end, protocol=protocol)


def _encoded(lines: list[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines]


@cache
def tls_context() -> ssl.SSLContext:
    """The one TLS context of the program: making one takes longer than a handshake."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Lane:
    """The connections of one slot: a session that plays here reuses them, one for each of its threads at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._tls = tls_context() if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._tls else 80)
        self._idle: list[StampedConnection] = []
        self._taken: set[StampedConnection] = set()

    async def take(self) -> StampedConnection:
        """An idle connection that is still good, else a new one. Raises OSError or TimeoutError."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and time.monotonic_ns() - connection.used_ns < IDLE_NS:
                self._taken.add(connection)
                return connection
            connection.abort()
        return await self.take_new()

    async def take_new(self) -> StampedConnection:
        """A new connection. Raises OSError or TimeoutError."""
        connection = await connect(self._host, self._port, self._tls, CONNECT_PATIENCE_S)
        self._taken.add(connection)
        return connection

    def give_back(self, connection: StampedConnection) -> None:
        """Keeps a connection for the next turn."""
        self._taken.discard(connection)
        self._idle.append(connection)

    def drop(self, connection: StampedConnection) -> None:
        """Closes a connection that cannot be used again."""
        self._taken.discard(connection)
        connection.abort()

    def close(self) -> None:
        """Closes every connection at once, without TLS's own farewell."""
        for connection in (*self._taken, *self._idle):
            connection.abort()
        self._taken.clear()
        self._idle.clear()


async def warm(lanes: list[Lane]) -> None:
    """Opens one connection a lane, so that handshakes are over before the clock starts. Raises TargetError when there is no server."""
    opened = await asyncio.gather(*[lane.take() for lane in lanes], return_exceptions=True)
    for lane, connection in zip(lanes, opened, strict=True):
        if isinstance(connection, StampedConnection):
            lane.give_back(connection)
    wrong = next((error for error in opened if isinstance(error, BaseException)), None)
    if isinstance(wrong, OSError):
        raise TargetError(
            f"the target cannot be reached: {describe(wrong)}", hint="start the server, or give the URL of one that runs with --target"
        ) from wrong
    if wrong is not None:
        raise wrong


_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")
"""What OpenSSL says of an answer that is no TLS record."""


def describe(error: BaseException) -> str:
    """An error of the network in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); SSL_CERT_FILE names a file of certificates to trust"
    if isinstance(error, ssl.SSLError):  # its errno is OpenSSL's, not the system's
        return "it does not speak TLS (http:// rather than https://?)" if error.reason in _NOT_TLS else f"TLS failed ({error.reason})"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__


@dataclass(slots=True)
class _Answer:
    """An answer as it comes."""

    status: int | None = None
    headers: Headers = ()
    head_ns: int = 0
    pieces: list[Read] = field(default_factory=list)

    def take(self, event: h11.Event, at_ns: int, body: list[bytes]) -> None:
        if isinstance(event, h11.Response):
            self.status, self.head_ns = event.status_code, at_ns
            self.headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers.raw_items())
        elif isinstance(event, h11.Data):
            body.append(bytes(event.data))


async def send(lane: Lane, connection: StampedConnection, message: Message, *, silence_s: float = SILENCE_S) -> Heard:
    """Writes the message now and hears the answer to its end, or to what ended it. Never raises for what the wire does.

    A connection that carried a request before and is closed before any of this answer came was most likely being closed when the request
    left: the same bytes go once over a new one (RFC 9112 section 9.3.1; the request is a POST, but one that no server has begun to
    answer). Never for a new connection, never twice; the wait then stands between due and start, and `Heard.reconnected` says so.

    The connection goes back to its lane when it can be used again. Cancelled, it gives what came with `interrupted` (see `Cut`).
    """
    try:
        return await _send(lane, connection, message, silence_s)
    except _ClosedUnanswered:
        return await _send_again(lane, message, silence_s)


async def _send_again(lane: Lane, message: Message, silence_s: float) -> Heard:
    """Over a new connection. h11 has heard nothing of the first sending's end, so its state still fits."""
    try:
        heard = await _send(lane, await lane.take_new(), message, silence_s)
    except OSError as error:
        heard = unreached(error)
    except Cut as cut:
        raise Cut(replace(cut.heard, reconnected=True)) from None
    except asyncio.CancelledError:
        raise Cut(replace(unreached(OSError()), failure=_STOPPED, reconnected=True)) from None
    return replace(heard, reconnected=True)


class _ClosedUnanswered(Exception):  # noqa: N818 - not an error yet
    """A connection that was used before has been closed, and none of the answer had come."""


_STOPPED = (FailureKind.INTERRUPTED, "the replay was stopped")


async def _send(lane: Lane, connection: StampedConnection, message: Message, silence_s: float) -> Heard:
    """One sending over one connection. Raises _ClosedUnanswered, Cut."""
    answer = _Answer()
    start_ns = time.monotonic_ns()
    connection.write(message.wire)
    failure: tuple[FailureKind, str] | None = None
    end_ns = start_ns
    try:
        end_ns = await _hear(connection, message.protocol, answer, silence_s)
    except TimeoutError:
        failure = FailureKind.TIMED_OUT, f"nothing came for {silence_s:.0f} s"
    except h11.RemoteProtocolError as error:
        failure = FailureKind.SERVER_CUT, f"{error}" + (f" ({describe(connection.error)})" if connection.error else "")
    except asyncio.CancelledError:
        lane.drop(connection)
        raise Cut(_heard(answer, connection, start_ns, time.monotonic_ns(), _STOPPED)) from None
    except _ClosedUnanswered:
        lane.drop(connection)
        raise
    if failure is None and _reusable(message.protocol):
        lane.give_back(connection)
    else:
        lane.drop(connection)
    return _heard(answer, connection, start_ns, end_ns if failure is None else time.monotonic_ns(), failure)


def _reusable(protocol: h11.Connection) -> bool:
    """Whether both sides are done, want to go on, and nothing unasked has come."""
    return protocol.our_state is h11.DONE and protocol.their_state is h11.DONE and protocol.trailing_data == (b"", False)


class Cut(asyncio.CancelledError):
    """A cancelled exchange, with what had been heard of it."""

    def __init__(self, heard: Heard) -> None:
        super().__init__()
        self.heard = heard


async def _hear(connection: StampedConnection, protocol: h11.Connection, answer: _Answer, silence_s: float) -> int:
    """Reads to the end of the answer and gives the stamp of the read that completed it.

    h11 is emptied after every read, so whatever it gives was completed by the last one: that is the stamp of the piece.
    Raises h11.RemoteProtocolError, TimeoutError, _ClosedUnanswered.
    """
    read = await connection.read(silence_s)
    if not read.data and connection.writes > 1:
        raise _ClosedUnanswered
    while True:
        protocol.receive_data(read.data)
        if _drain(protocol, answer, read.at_ns):
            return read.at_ns
        read = await connection.read(silence_s)


def _drain(protocol: h11.Connection, answer: _Answer, at_ns: int) -> bool:
    """Takes every event that is complete; whether the message is. Bytes before one that h11 refuses are kept."""
    body: list[bytes] = []
    try:
        while (event := protocol.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage):
                return True
            assert isinstance(event, h11.Event)
            answer.take(event, at_ns, body)
        return False
    finally:
        if body:
            answer.pieces.append(Read(at_ns, b"".join(body)))


def _heard(answer: _Answer, connection: StampedConnection, start_ns: int, end_ns: int, failure: tuple[FailureKind, str] | None) -> Heard:
    return Heard(
        start_ns=start_ns,
        sent_ns=connection.sent_ns,
        end_ns=end_ns,
        status=answer.status,
        headers=answer.headers,
        head_ns=answer.head_ns,
        pieces=tuple(answer.pieces),
        failure=failure,
    )


def unreached(error: BaseException) -> Heard:
    """What is heard of a request for which no connection could be opened."""
    now_ns = time.monotonic_ns()
    kind = FailureKind.TIMED_OUT if isinstance(error, TimeoutError) else FailureKind.UNREACHABLE
    return Heard(start_ns=now_ns, sent_ns=None, end_ns=now_ns, failure=(kind, describe(error)))


def unsent(reason: str) -> Heard:
    """What is heard of a request that cannot be sent at all."""
    now_ns = time.monotonic_ns()
    return Heard(start_ns=now_ns, sent_ns=None, end_ns=now_ns, failure=(FailureKind.UNREACHABLE, f"not sent: {reason}"))


def exchange(request: Request, heard: Heard, clock: Clock) -> Exchange:
    """What was heard as an exchange. `request` and `heard.headers` have their secrets masked by the caller."""
    made = Assembler(clock)
    made.request_head(heard.start_ns, request.method, request.url, request.headers)
    made.request_data(heard.start_ns, request.body)
    if heard.sent_ns is not None:
        made.request_end(heard.sent_ns)
    if heard.status is not None:
        made.response_head(heard.head_ns, heard.status, heard.headers)
    for piece in heard.pieces:
        made.response_data(piece.at_ns, piece.data)
    if heard.failure is not None:
        made.fail(heard.end_ns, *heard.failure)
    made.end(heard.end_ns)
    return made.exchange()
