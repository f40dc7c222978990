"""What a client is told when mitmproxy itself answers: the provider's JSON, and never by a close that throws it away."""

from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layers.http import _http1
from mitmproxy.proxy.layers.http._base import HttpEvent
from mitmproxy.proxy.layers.http._events import ResponseProtocolError

from tracer import refusal
from tracer.guards.patching import Commands, Undo, replace, undo_all

_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\n"


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

    return replace(_http1.Http1Server, "read_headers", read_http1_headers)


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

    return undo_all(
        [
            replace(_http1.Http1Server, "send", send_json),
            replace(_http1, "make_error_response", refusal.response),
        ]
    )
