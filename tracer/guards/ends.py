"""Who ended what, and how: noted on mitmproxy's own values while it is known, for `tracer.addon` to read."""

import asyncio
from typing import Any

from mitmproxy.proxy import events, server
from mitmproxy.proxy.layers import tcp
from mitmproxy.proxy.layers.http import HttpStream
from mitmproxy.proxy.layers.http._events import ErrorCode, RequestData, RequestProtocolError, ResponseProtocolError

from tracer.guards.patching import Commands, Undo, replace

TIMED_OUT = "closed after a long silence"
"""What `client_conn.error` reads when the time limit closed the connection."""

CUT_BY = "playhead_cut_by"
"""Key in a flow's metadata: `client` or `upstream`, whoever broke the exchange off, or hung up first on an upgraded connection."""

WAITED = "playhead_waited"
"""Key in a flow's metadata: the pieces of an upload that waited behind a connection which then could not be made."""


def note_who_cut() -> Undo:
    """mitmproxy's texts mislead (an upstream's HTTP/2 reset reads "by client"); the type of the event does not."""
    handle = HttpStream.handle_protocol_error

    def note_and_go_on(self: HttpStream, event: RequestProtocolError | ResponseProtocolError) -> Commands:
        self.flow.metadata.setdefault(CUT_BY, "client" if isinstance(event, RequestProtocolError) else "upstream")
        yield from handle(self, event)

    return replace(HttpStream, "handle_protocol_error", note_and_go_on)


def note_what_waited() -> Undo:
    """An upload waits in the stream's queue while the upstream is connected to, and is thrown away when that fails: it is noted first."""
    handle = HttpStream.handle_protocol_error

    def note_and_go_on(self: HttpStream, event: RequestProtocolError | ResponseProtocolError) -> Commands:
        if event.code is ErrorCode.CONNECT_FAILED:
            self.flow.metadata[WAITED] = tuple(bytes(each.data) for each in self._paused_event_queue if isinstance(each, RequestData))
        yield from handle(self, event)

    return replace(HttpStream, "handle_protocol_error", note_and_go_on)


def note_who_hung_up() -> Undo:
    """Of an upgraded connection mitmproxy only says that it is over."""
    relay = tcp.TCPLayer.relay_messages

    def note_and_relay(self: tcp.TCPLayer, event: events.Event) -> Commands:
        if isinstance(event, events.ConnectionClosed) and self.flow:
            self.flow.metadata.setdefault(CUT_BY, "client" if event.connection == self.context.client else "upstream")
        yield from relay(self, event)

    return replace(tcp.TCPLayer, "relay_messages", note_and_relay)


def note_timeouts() -> Undo:
    """A connection closed for its silence must not read as if the client had left."""
    on_timeout = server.ConnectionHandler.on_timeout

    async def note_and_close(self: server.ConnectionHandler) -> None:
        self.client.error = TIMED_OUT
        await on_timeout(self)

    return replace(server.ConnectionHandler, "on_timeout", note_and_close)


def was_reset(handler: server.ConnectionHandler | None, connection: Any) -> bool:
    """Whether a peer's connection ended by a reset: mitmproxy reads it as a clean end, and a body read until close then looks whole."""
    if handler is None or connection not in handler.transports:
        return False
    reader = handler.transports[connection].reader
    return isinstance(reader, asyncio.StreamReader) and isinstance(reader.exception(), ConnectionError)
