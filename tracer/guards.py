"""Mends what mitmproxy 12.3 does to an agent's traffic: each guard replaces one internal, and the contract test names every one of them.

A guard is a function that patches and gives back how to undo it. None of them looks at what an exchange means; what the recorder must
know about an end (who cut it, whether by a reset, whether by a time limit) is noted on mitmproxy's own values for `tracer.addon` to read.
"""

import asyncio
import collections
import re
from collections.abc import Callable, Iterable
from typing import Any

import h11
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from mitmproxy import http
from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import commands, events, layer, server
from mitmproxy.proxy.layers import tcp
from mitmproxy.proxy.layers.http import HttpStream, _http1
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestProtocolError,
    RequestTrailers,
    ResponseData,
    ResponseEndOfMessage,
    ResponseProtocolError,
    ResponseTrailers,
)

from tracer import refusal

type Commands = layer.CommandGenerator[None]
type Undo = Callable[[], None]

CHECKED_VERSION = "12.3"
"""The mitmproxy release whose internals these guards were written against."""

CONNECTIONS_AT_ONCE = 4096
"""Upstream connections that one client connection may hold; mitmproxy's 5 makes the sixth concurrent stream wait for an earlier one."""

TIMED_OUT = "closed after a long silence"
"""What `client_conn.error` reads when the time limit closed the connection."""

CUT_BY = "playhead_cut_by"
"""Key in a flow's metadata: `client` or `upstream`, whoever broke the exchange off, or hung up first on an upgraded connection."""

WAITED = "playhead_waited"
"""Key in a flow's metadata: the pieces of an upload that waited behind a connection which then could not be made."""

_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"

_INFORMATIONAL = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[ \r\n]")


def install(guards: Iterable[Callable[[], Undo]] | None = None) -> Undo:
    """Puts all guards (or those given) in place for the whole program; returns what takes them away again."""
    return _undo_all([guard() for guard in (GUARDS if guards is None else guards)])


def _undo_all(undone: list[Undo]) -> Undo:
    def undo() -> None:
        for step in reversed(undone):
            step()

    return undo


def _replace(owner: Any, name: str, new: Any) -> Undo:
    old = getattr(owner, name)
    setattr(owner, name, new)
    return lambda: setattr(owner, name, old)


# ---- trailers: mitmproxy raises NotImplementedError on them, and the client waits for ever -----------------------------


class TrailerReader(ChunkedReader):
    """Reads a chunked body and sets its trailers aside, where mitmproxy would refuse them."""

    trailers: tuple[tuple[bytes, bytes], ...] = ()

    def __call__(self, buf: ReceiveBuffer) -> h11.Data | h11.EndOfMessage | None:
        event = super().__call__(buf)
        if isinstance(event, h11.EndOfMessage) and event.headers:
            self.trailers = tuple((bytes(name), bytes(value)) for name, value in event.headers.raw_items())
            return h11.EndOfMessage()
        return event


def pass_trailers() -> Undo:
    """Trailers of an HTTP/1 message go on to the other side as they came (RFC 9112, section 7.1.2)."""
    make_reader, read_body = _http1.make_body_reader, _http1.Http1Connection.read_body

    def make_body_reader(expected_size: int | None) -> Any:
        return TrailerReader() if expected_size is None else make_reader(expected_size)

    def read_body_with_trailers(self: _http1.Http1Connection, event: events.Event) -> Commands:
        for command in read_body(self, event):
            if isinstance(command, ReceiveHttp) and (trailers := getattr(self.body_reader, "trailers", ())):
                if isinstance(command.event, ResponseEndOfMessage):
                    yield ReceiveHttp(ResponseTrailers(command.event.stream_id, http.Headers(trailers)))
                elif isinstance(command.event, RequestEndOfMessage):
                    yield ReceiveHttp(RequestTrailers(command.event.stream_id, http.Headers(trailers)))
            yield command

    return _undo_all(
        [
            _replace(_http1, "make_body_reader", make_body_reader),
            _replace(_http1.Http1Connection, "read_body", read_body_with_trailers),
            _replace(_http1.Http1Server, "send", _sends_trailers(_http1.Http1Server.send)),
            _replace(_http1.Http1Client, "send", _sends_trailers(_http1.Http1Client.send)),
        ]
    )


def _sends_trailers(send: Callable[[Any, HttpEvent], Commands]) -> Callable[[Any, HttpEvent], Commands]:
    """An HTTP/1 writer that keeps trailers until the last chunk, which is where they go."""

    def send_with_trailers(self: Any, event: HttpEvent) -> Commands:
        if isinstance(event, RequestTrailers | ResponseTrailers):
            self.trailers_to_send = event.trailers
            return
        trailers = self.__dict__.pop("trailers_to_send", None) if isinstance(event, RequestEndOfMessage | ResponseEndOfMessage) else None
        for command in send(self, event):
            if trailers and isinstance(command, commands.SendData) and command.data == b"0\r\n\r\n":
                yield commands.SendData(command.connection, b"0\r\n" + bytes(trailers) + b"\r\n")
            else:
                yield command

    return send_with_trailers


# ---- framing ---------------------------------------------------------------------------------------------------------


def frame_once() -> Undo:
    """How an answer is framed is looked up once a message, not once a chunk (a sixth of what a chunk costs), and an empty piece never
    becomes the chunk that ends the message.
    """
    send = _http1.Http1Server.send

    def send_framed(self: _http1.Http1Server, event: HttpEvent) -> Commands:
        if not isinstance(event, ResponseData):
            yield from send(self, event)
            return
        known: tuple[http.Response | None, bool] = self.__dict__.get("framing", (None, False))
        if known[0] is not self.response:
            assert self.response
            known = self.__dict__["framing"] = (self.response, "chunked" in self.response.headers.get("transfer-encoding", "").lower())
        if event.data:
            yield commands.SendData(self.conn, b"%x\r\n%s\r\n" % (len(event.data), event.data) if known[1] else event.data)

    return _replace(_http1.Http1Server, "send", send_framed)


# ---- 1xx heads from the upstream: mitmproxy takes the first for the answer ------------------------------------------


def drop_informational() -> Undo:
    """Heads with 100, 102, 103, ... before the final one are skipped; 101 is final."""
    read_headers = _http1.Http1Client.read_headers

    def read_final_headers(self: _http1.Http1Client, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived) and self.request:
            while _INFORMATIONAL.match(bytes(self.buf)) and self.buf.maybe_extract_lines() is not None:
                pass
        yield from read_headers(self, event)

    return _replace(_http1.Http1Client, "read_headers", read_final_headers)


# ---- HTTP/2 by prior knowledge: mitmproxy takes its preface for a request and sends it on ------------------------------


def refuse_prior_knowledge() -> Undo:
    """A client that speaks HTTP/2 without having been asked to is told so, and the upstream hears nothing."""
    read_headers = _http1.Http1Server.read_headers

    def read_http1_headers(self: _http1.Http1Server, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived) and bytes(self.buf).startswith(_HTTP2_PREFACE):
            yield commands.SendData(self.conn, refusal.response(505, "the recorder speaks HTTP/1.1 here, not HTTP/2 by prior knowledge"))
            yield commands.CloseConnection(self.conn)
            self.state = self.done
            return
        yield from read_headers(self, event)

    return _replace(_http1.Http1Server, "read_headers", read_http1_headers)


# ---- five upstream connections a client connection ------------------------------------------------------------------


def allow_many_streams() -> Undo:
    """Concurrent HTTP/2 streams of one client never wait for each other."""
    make = server.ConnectionHandler.__init__

    def make_with_many(self: server.ConnectionHandler, context: Any) -> None:
        make(self, context)
        self.max_conns = collections.defaultdict(lambda: asyncio.Semaphore(CONNECTIONS_AT_ONCE))

    return _replace(server.ConnectionHandler, "__init__", make_with_many)


# ---- sockets left open ----------------------------------------------------------------------------------------------


def close_always() -> Undo:
    """A connection that is given up while it waits for its turn is closed too; mitmproxy leaves it to the garbage collector."""
    handle = server.ConnectionHandler.handle_connection

    async def handle_and_close(self: server.ConnectionHandler, connection: Connection) -> None:
        io = self.transports[connection]
        try:
            await handle(self, connection)
        finally:
            self.transports.pop(connection, None)
            if io.writer is not None and not io.writer.is_closing():
                io.writer.close()

    return _replace(server.ConnectionHandler, "handle_connection", handle_and_close)


# ---- errors of our own ----------------------------------------------------------------------------------------------


def refuse_in_json() -> Undo:
    """An unreachable upstream is told in the provider's JSON, and a client still uploading gets to read it.

    Closing a socket with unread bytes sends a reset, which throws away what the client has not read yet: while the upload goes on only
    our side is closed.
    """
    send = _http1.Http1Server.send

    def send_json(self: _http1.Http1Server, event: HttpEvent) -> Commands:
        if not isinstance(event, ResponseProtocolError) or not self.conn.state & ConnectionState.CAN_WRITE:
            yield from send(self, event)
            return
        status = event.code.http_status_code()
        if not self.response and status is not None:
            path, method = (self.request.path, self.request.method) if self.request else ("", "")
            yield commands.SendData(self.conn, refusal.response(status, event.message, path=path, method=method))
        if self.request_done or status is None:
            yield commands.CloseConnection(self.conn)
        else:
            yield commands.CloseTcpConnection(self.conn, half_close=True)

    return _undo_all(
        [
            _replace(_http1.Http1Server, "send", send_json),
            _replace(_http1, "make_error_response", refusal.response),
        ]
    )


# ---- who ended it ---------------------------------------------------------------------------------------------------


def note_who_cut() -> Undo:
    """mitmproxy's texts mislead (an upstream's HTTP/2 reset reads "by client"); the type of the event does not."""
    handle = HttpStream.handle_protocol_error

    def note_and_go_on(self: HttpStream, event: RequestProtocolError | ResponseProtocolError) -> Commands:
        self.flow.metadata.setdefault(CUT_BY, "client" if isinstance(event, RequestProtocolError) else "upstream")
        yield from handle(self, event)

    return _replace(HttpStream, "handle_protocol_error", note_and_go_on)


def note_what_waited() -> Undo:
    """An upload waits in the stream's queue while the upstream is connected to, and is thrown away when that fails: it is noted first."""
    handle = HttpStream.handle_protocol_error

    def note_and_go_on(self: HttpStream, event: RequestProtocolError | ResponseProtocolError) -> Commands:
        if event.code is ErrorCode.CONNECT_FAILED:
            self.flow.metadata[WAITED] = tuple(bytes(each.data) for each in self._paused_event_queue if isinstance(each, RequestData))
        yield from handle(self, event)

    return _replace(HttpStream, "handle_protocol_error", note_and_go_on)


def note_who_hung_up() -> Undo:
    """Of an upgraded connection mitmproxy only says that it is over."""
    relay = tcp.TCPLayer.relay_messages

    def note_and_relay(self: tcp.TCPLayer, event: events.Event) -> Commands:
        if isinstance(event, events.ConnectionClosed) and self.flow:
            self.flow.metadata.setdefault(CUT_BY, "client" if event.connection == self.context.client else "upstream")
        yield from relay(self, event)

    return _replace(tcp.TCPLayer, "relay_messages", note_and_relay)


def note_timeouts() -> Undo:
    """A connection closed for its silence must not read as if the client had left."""
    on_timeout = server.ConnectionHandler.on_timeout

    async def note_and_close(self: server.ConnectionHandler) -> None:
        self.client.error = TIMED_OUT
        await on_timeout(self)

    return _replace(server.ConnectionHandler, "on_timeout", note_and_close)


def was_reset(handler: server.ConnectionHandler | None, connection: Any) -> bool:
    """Whether a peer's connection ended by a reset: mitmproxy reads it as a clean end, and a body read until close then looks whole."""
    if handler is None or connection not in handler.transports:
        return False
    reader = handler.transports[connection].reader
    return isinstance(reader, asyncio.StreamReader) and isinstance(reader.exception(), ConnectionError)


GUARDS: tuple[Callable[[], Undo], ...] = (
    pass_trailers,
    drop_informational,
    allow_many_streams,
    refuse_in_json,
    refuse_prior_knowledge,
    note_who_cut,
    note_what_waited,
    note_who_hung_up,
    note_timeouts,
    frame_once,
    close_always,
)
