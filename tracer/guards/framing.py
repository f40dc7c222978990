"""What mitmproxy does not pass on, or takes for something else: trailers, 1xx heads, empty pieces.

Guards of HTTP/1 alone. They do not know what an exchange means.
"""

import re
from collections.abc import Callable
from typing import Any

import h11
from h11._readers import ChunkedReader
from h11._receivebuffer import ReceiveBuffer
from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import HttpEvent, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    RequestEndOfMessage,
    RequestTrailers,
    ResponseData,
    ResponseEndOfMessage,
    ResponseTrailers,
)

from tracer.guards.patching import Commands, Undo, replace, undo_all

_INFORMATIONAL = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[ \r\n]")

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

    return undo_all(
        [
            replace(_http1, "make_body_reader", make_body_reader),
            replace(_http1.Http1Connection, "read_body", read_body_with_trailers),
            replace(_http1.Http1Server, "send", _sends_trailers(_http1.Http1Server.send)),
            replace(_http1.Http1Client, "send", _sends_trailers(_http1.Http1Client.send)),
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

    return replace(_http1.Http1Server, "send", send_framed)


# ---- 1xx heads from the upstream: mitmproxy takes the first for the answer ------------------------------------------


def drop_informational() -> Undo:
    """Heads with 100, 102, 103, ... before the final one are skipped; 101 is final."""
    read_headers = _http1.Http1Client.read_headers

    def read_final_headers(self: _http1.Http1Client, event: events.ConnectionEvent) -> Commands:
        if isinstance(event, events.DataReceived) and self.request:
            while _INFORMATIONAL.match(bytes(self.buf)) and self.buf.maybe_extract_lines() is not None:
                pass
        yield from read_headers(self, event)

    return replace(_http1.Http1Client, "read_headers", read_final_headers)
