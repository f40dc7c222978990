"""The recorder as mitmproxy sees it: its hooks tell an assembler what came, and a sink what to keep.

On the way of every byte: nothing here waits, raises into mitmproxy or gives back anything but what came. When recording fails the traffic
goes on and the failure is told (`on_trouble`). It does not know dialects, sessions or the store behind the sink.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from mitmproxy import http, tcp
from mitmproxy.connection import Client, Connection, ConnectionState

from storage.records import Arrival, Exchange, FailureKind, Headers, Origin, Transport
from tracer import guards
from tracer.assembler import Assembler
from tracer.clock import Clock, monotonic_ns
from tracer.redaction import Redaction

if TYPE_CHECKING:
    from mitmproxy.proxy import server

_LABEL = re.compile(rb"/s/([^/?#]{1,200})(/.*)", re.DOTALL)


class Sink(Protocol):
    """Whoever keeps exchanges (`storage.writer.Writer`); none of these may wait for a disk."""

    def begin(self, exchange: Exchange) -> int: ...
    def request_piece(self, ticket: int, data: bytes) -> None: ...
    def request_complete(self, ticket: int, exchange: Exchange) -> None: ...
    def response_head(self, ticket: int, exchange: Exchange) -> None: ...
    def arrival(self, ticket: int, arrival: Arrival) -> None: ...
    def finish(self, ticket: int, exchange: Exchange) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one listener's traffic goes: `origin` without a path, `base_path` put before what the client asks for."""

    listener: str
    origin: str
    base_path: str = ""


class Stream:
    """One exchange on its way through: the taps that see its bytes, and what the sink calls it."""

    __slots__ = ("_sink", "_trouble", "answered", "assembler", "ticket")

    def __init__(self, assembler: Assembler, sink: Sink, trouble: Callable[[BaseException], None]) -> None:
        self.assembler = assembler
        self._sink = sink
        self._trouble = trouble
        self.ticket = sink.begin(assembler.exchange())
        self.answered = False

    def request_tap(self, data: bytes) -> bytes | list[bytes]:
        """Sees one piece of the upload. An empty piece that is not the last would end the message on the wire: it is dropped."""
        if data:
            try:
                self.assembler.request_data(monotonic_ns(), data)
                self._sink.request_piece(self.ticket, data)
            except Exception as wrong:  # mitmproxy drops the client's bytes when a tap raises
                self._trouble(wrong)
            return data
        return []

    def response_tap(self, data: bytes) -> bytes | list[bytes]:
        """Sees one read of the answer; stamped first of all."""
        at_ns = monotonic_ns()
        if data:
            try:
                self._sink.arrival(self.ticket, self.assembler.response_data(at_ns, data))
            except Exception as wrong:  # mitmproxy drops the client's bytes when a tap raises
                self._trouble(wrong)
            return data
        return []

    def request_end(self, at_ns: int) -> None:
        self.assembler.request_end(at_ns)
        self._sink.request_complete(self.ticket, self.assembler.exchange())

    def response_head(self, at_ns: int, status: int, headers: Headers) -> None:
        self.assembler.response_head(at_ns, status, headers)
        self._sink.response_head(self.ticket, self.assembler.exchange())

    def finish(self) -> None:
        self._sink.finish(self.ticket, self.assembler.exchange())


class Recorder:
    """The mitmproxy addon. `routes` by the listener's port; `handler_of` finds the connection handler behind a client."""

    def __init__(self, sink: Sink, redaction: Redaction, *, on_trouble: Callable[[str], None]) -> None:
        self.routes: Mapping[int, Route] = {}
        self.handler_of: Callable[[Client], server.ConnectionHandler | None] = lambda _: None
        self._client: tuple[int, str] | None = None
        self._sink = sink
        self._redaction = redaction
        self._on_trouble = on_trouble
        self._clock = Clock()
        self._streams: dict[str, Stream] = {}

    # ---- mitmproxy's hooks, in the order in which they fire ----

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Routes the request, begins its exchange and lets the upload stream."""
        at_ns = monotonic_ns()
        flow.request.stream = True  # whatever happens below, the upload must not be held back
        route = self.routes.get(flow.client_conn.sockname[1])
        asked, label = flow.request.data.path, None
        if match := _LABEL.match(asked):
            label, asked = unquote(match[1].decode("latin-1")), match[2]
        flow.request.data.path = (route.base_path.encode() if route else b"") + asked
        try:
            self._begin(flow, at_ns, asked.decode("latin-1"), self._origin(flow, route, label))
        except Exception as wrong:  # the traffic goes on
            self._trouble(wrong)

    def request(self, flow: http.HTTPFlow) -> None:
        """The whole request has gone on. It may be later than the answer."""
        if stream := self._stream(flow):
            at_ns = monotonic_ns()
            self._safely(lambda: stream.request_end(at_ns))
            if stream.answered:
                self._end(flow, stream)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """The head of the answer. Sync and fast: chunks would queue behind it and share one stamp."""
        at_ns = monotonic_ns()
        assert flow.response
        stream = self._stream(flow)
        if stream is None:
            flow.response.stream = True
            return
        flow.response.stream = stream.response_tap
        status, headers = flow.response.status_code, self._headers(flow.response)
        self._safely(lambda: stream.response_head(at_ns, status, headers))

    def response(self, flow: http.HTTPFlow) -> None:
        """The whole answer is here; with an upload still going on the exchange ends when that does."""
        if stream := self._stream(flow):
            if _read_until_close(flow) and guards.was_reset(self.handler_of(flow.client_conn), flow.server_conn):
                self._fail(flow, stream, FailureKind.SERVER_CUT, "the upstream reset the connection")
            elif stream.assembler.has_whole_request:
                self._end(flow, stream)
            else:
                stream.answered = True

    def error(self, flow: http.HTTPFlow) -> None:
        """Something broke the exchange off."""
        if stream := self._stream(flow):
            for piece in flow.metadata.pop(guards.WAITED, ()):
                stream.request_tap(piece)
            message = flow.error.msg if flow.error else "unknown"
            self._fail(flow, stream, failure_kind(flow, has_head=stream.assembler.has_response_head), message)

    def client_disconnected(self, client: Client) -> None:
        """Ends what no hook will end any more: an answer that came whole before its request did, and then the client left."""
        for key, stream in list(self._streams.items()):
            if stream.answered and stream.assembler.exchange().origin.connection == client.id:
                del self._streams[key]
                self._close(stream)

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """An upgraded connection passes raw; mitmproxy would keep every byte of it for ever."""
        del flow.messages[:-1]

    # ---- for the program around ----

    def client(self, pid: int, command: Sequence[str]) -> None:
        """All traffic from now on is this command's."""
        self._client = (pid, self._redaction.command(command))

    @property
    def open_exchanges(self) -> int:
        """Exchanges in flight."""
        return len(self._streams)

    def tell(self, text: str) -> None:
        """Says that something may have gone unrecorded."""
        self._on_trouble(self._redaction.text(text))

    def interrupt(self) -> None:
        """Ends every exchange in flight as interrupted by the recorder."""
        at_ns = monotonic_ns()
        for stream in self._streams.values():
            stream.assembler.fail(at_ns, FailureKind.INTERRUPTED, "the recorder was stopped")
            self._close(stream)
        self._streams.clear()

    # ---- inside ----

    def _begin(self, flow: http.HTTPFlow, at_ns: int, asked: str, origin: Origin) -> None:
        route = self.routes.get(flow.client_conn.sockname[1])
        assembler = Assembler(self._clock)
        assembler.request_head(
            at_ns,
            flow.request.method,
            self._redaction.url((route.origin if route else "") + asked),
            self._headers(flow.request),
            transport=Transport.H2 if flow.request.is_http2 else Transport.HTTP1,
        )
        assembler.came_from(origin)
        stream = Stream(assembler, self._sink, self._trouble)
        self._streams[flow.id] = stream
        flow.request.stream = stream.request_tap

    def _origin(self, flow: http.HTTPFlow, route: Route | None, label: str | None) -> Origin:
        return Origin(
            listener=route.listener if route else None,
            connection=flow.client_conn.id,
            client_pid=self._client[0] if self._client else None,
            client_command=self._client[1] if self._client else None,
            label=self._redaction.text(label) if label else None,
        )

    def _headers(self, message: http.Message) -> Headers:
        return self._redaction.headers(tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in message.headers.fields))

    def _stream(self, flow: http.HTTPFlow) -> Stream | None:
        return self._streams.get(flow.id)

    def _end(self, flow: http.HTTPFlow, stream: Stream) -> None:
        self._streams.pop(flow.id, None)
        self._close(stream)

    def _fail(self, flow: http.HTTPFlow, stream: Stream, kind: FailureKind, message: str) -> None:
        stream.assembler.fail(monotonic_ns(), kind, self._redaction.text(message)[:500])
        self._end(flow, stream)

    def _close(self, stream: Stream) -> None:
        stream.assembler.end(monotonic_ns())
        self._safely(stream.finish)

    def _safely(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as wrong:  # the traffic goes on
            self._trouble(wrong)

    def _trouble(self, wrong: BaseException) -> None:
        self.tell(f"{type(wrong).__name__}: {wrong}")


def failure_kind(flow: http.HTTPFlow, *, has_head: bool) -> FailureKind:
    """Who or what broke a flow off, from the events and the states of its connections; mitmproxy's texts are not to be trusted.

    A client that leaves while the upstream is still being connected to shows as a failed connection: mitmproxy gave it up itself.
    """
    cut_by = flow.metadata.get(guards.CUT_BY)
    is_connected = not _never_connected(flow.server_conn)
    if flow.client_conn.error == guards.TIMED_OUT:
        return FailureKind.TIMED_OUT
    if cut_by == "client" or not (_reads(flow.client_conn) or (cut_by == "upstream" and is_connected)):
        return FailureKind.CLIENT_LEFT
    return FailureKind.SERVER_CUT if has_head or (cut_by == "upstream" and is_connected) else FailureKind.UNREACHABLE


def _read_until_close(flow: http.HTTPFlow) -> bool:
    assert flow.response
    headers = flow.response.headers
    return "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()


def _reads(connection: Connection) -> bool:
    return bool(connection.state & ConnectionState.CAN_READ)


def _never_connected(connection: Connection) -> bool:
    return connection.error is not None or connection.timestamp_start is None or getattr(connection, "timestamp_tcp_setup", None) is None
