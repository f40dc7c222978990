"""The recorder as mitmproxy sees it: its hooks tell an assembler what came, and a sink what to keep.

On the way of every byte: nothing here waits, raises into mitmproxy or gives back anything but what came. When recording fails the traffic
goes on and the failure is told (`on_trouble`). It does not know dialects, sessions or the store behind the sink.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mitmproxy import http, tcp
from mitmproxy.connection import Client, Connection, ConnectionState

from storage.records import FailureKind, Headers, Origin, Transport
from tracer.assembler import Assembler
from tracer.clock import Clock, monotonic_ns
from tracer.guards import ends
from tracer.redaction import Redaction
from tracer.sockets import Socket
from tracer.stream import Sink, Stream

if TYPE_CHECKING:
    from mitmproxy.proxy import server

_LABEL = re.compile(rb"/s/([^/?#]{1,200})(/.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one listener's traffic goes: `origin` without a path, `base_path` put before what the client asks for."""

    listener: str
    origin: str
    base_path: str = ""


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
        self._sockets: dict[str, Socket] = {}
        """By the client's connection, which is the socket's alone once it was upgraded."""

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
            if _asks_for_websocket(flow):
                stream.assembler.request_end(at_ns)  # what the client says on the socket may still become its body
            else:
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
            if _is_websocket(flow):
                self._safely(lambda: self._upgraded(flow, stream))
            elif _read_until_close(flow) and ends.was_reset(self.handler_of(flow.client_conn), flow.server_conn):
                self._fail(flow, stream, FailureKind.SERVER_CUT, "the upstream reset the connection")
            elif stream.assembler.has_whole_request:
                self._end(flow, stream)
            else:
                stream.answered = True

    def error(self, flow: http.HTTPFlow) -> None:
        """Something broke the exchange off."""
        if stream := self._stream(flow):
            for piece in flow.metadata.pop(ends.WAITED, ()):
                stream.request_tap(piece)
            message = flow.error.msg if flow.error else "unknown"
            self._fail(flow, stream, failure_kind(flow, has_head=stream.assembler.has_response_head), message)

    def client_disconnected(self, client: Client) -> None:
        """Ends what no hook will end any more: an answer that came whole before its request did, and then the client left."""
        for key, stream in list(self._streams.items()):
            if stream.answered and stream.assembler.exchange().origin.connection == client.id:
                del self._streams[key]
                self._close(stream)
        self._socket_ended(client, None)

    def tcp_message(self, flow: tcp.TCPFlow) -> None:
        """What passes on an upgraded connection, as it came; mitmproxy would keep every byte of it for ever."""
        at_ns = monotonic_ns()
        message = flow.messages[-1]
        del flow.messages[:-1]
        if socket := self._sockets.get(flow.client_conn.id):
            try:
                socket.passed(at_ns, message.content, from_client=message.from_client)
            except Exception as wrong:  # the traffic goes on
                why = self._redaction.text(f"{type(wrong).__name__}: {wrong}")
                self._safely(lambda: socket.lose(at_ns, why))

    def tcp_end(self, flow: tcp.TCPFlow) -> None:
        """An upgraded connection is over."""
        self._socket_ended(flow.client_conn, flow.metadata.get(ends.CUT_BY))

    # ---- for the program around ----

    def client(self, pid: int, command: Sequence[str]) -> None:
        """All traffic from now on is this command's."""
        self._client = (pid, self._redaction.command(command))

    @property
    def open_exchanges(self) -> int:
        """Exchanges in flight. An idle socket has none: nobody waits for it to end."""
        return len(self._streams) + sum(socket.open_responses for socket in self._sockets.values())

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
        for socket in self._sockets.values():
            self._end_socket(socket, FailureKind.INTERRUPTED, "the recorder was stopped")
        self._sockets.clear()

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

    def _upgraded(self, flow: http.HTTPFlow, upgrade: Stream) -> None:
        """The upgrade's exchange goes on as long as the socket."""
        head = upgrade.assembler.exchange()

        def begin(at_ns: int) -> Stream:
            assembler = Assembler(self._clock)
            assembler.request_head(at_ns, head.request.method, head.request.url, head.request.headers, transport=Transport.WS)
            assembler.came_from(head.origin)
            return Stream(assembler, self._sink, self._trouble)

        del self._streams[flow.id]
        self._sockets[flow.client_conn.id] = Socket(upgrade, begin, tell=self.tell, mask=self._redaction.text)

    def _socket_ended(self, client: Client, cut_by: str | None) -> None:
        socket = self._sockets.pop(client.id, None)
        if socket is None:
            return
        if client.error == ends.TIMED_OUT:
            self._end_socket(socket, FailureKind.TIMED_OUT, "closed after a long silence")
        elif cut_by == "upstream":
            self._end_socket(socket, FailureKind.SERVER_CUT, "the upstream ended the connection without a close frame")
        else:
            self._end_socket(socket, FailureKind.CLIENT_LEFT, "the client left without a close frame")

    def _end_socket(self, socket: Socket, kind: FailureKind, why: str) -> None:
        at_ns = monotonic_ns()
        self._safely(lambda: socket.end(at_ns, kind, why))

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
        at_ns = monotonic_ns()
        self._safely(lambda: stream.finish(at_ns))

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
    cut_by = flow.metadata.get(ends.CUT_BY)
    is_connected = not _never_connected(flow.server_conn)
    if flow.client_conn.error == ends.TIMED_OUT:
        return FailureKind.TIMED_OUT
    if cut_by == "client" or not (_reads(flow.client_conn) or (cut_by == "upstream" and is_connected)):
        return FailureKind.CLIENT_LEFT
    return FailureKind.SERVER_CUT if has_head or (cut_by == "upstream" and is_connected) else FailureKind.UNREACHABLE


def _asks_for_websocket(flow: http.HTTPFlow) -> bool:
    return "websocket" in flow.request.headers.get("upgrade", "").lower()


def _is_websocket(flow: http.HTTPFlow) -> bool:
    assert flow.response
    return flow.response.status_code == 101 and _asks_for_websocket(flow)


def _read_until_close(flow: http.HTTPFlow) -> bool:
    assert flow.response
    headers = flow.response.headers
    return "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()


def _reads(connection: Connection) -> bool:
    return bool(connection.state & ConnectionState.CAN_READ)


def _never_connected(connection: Connection) -> bool:
    return connection.error is not None or connection.timestamp_start is None or getattr(connection, "timestamp_tcp_setup", None) is None
