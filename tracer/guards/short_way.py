"""The short way of an answer in mid-stream: from the upstream's socket to the recorder's tap and the client's socket, nothing between.

mitmproxy sends every chunk through a dozen generators, two locks and a task switch to come to the same bytes. Here only what is plain
takes the short way: whole chunks with nothing left over, or bytes of a body that does not end with them, while nobody waits for anything.
All else (heads, ends, trailers, split chunks, errors, a client that reads slowly, TLS to the client, HTTP/2) goes the long way as before.
"""

import asyncio
import re
from typing import Any

from h11._readers import ChunkedReader, ContentLengthReader
from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import commands, events, server
from mitmproxy.proxy.layers.http import HttpLayer, HttpStream, _http1

from tracer.guards.patching import Commands, Undo, replace, undo_all

_CHUNK_HEAD = re.compile(rb"([1-9a-f][0-9a-f]{0,7})\r\n")
"""As mitmproxy writes it too, so that the chunk can go on as it is. The last chunk is none of these."""


def whole_chunks(wire: bytes) -> list[bytes] | None:
    """What the chunks hold, where there are only whole ones, framed as we would; None otherwise."""
    found, place, end = [], 0, len(wire)
    while place < end:
        head = _CHUNK_HEAD.match(wire, place)
        if head is None:
            return None
        start = head.end()
        place = start + int(head[1], 16) + 2
        if wire[place - 2 : place] != b"\r\n":
            return None
        found.append(wire[start : place - 2])
    return found


class ShortWay:
    """The way of one answer's body: what reads it (`source`), its stream, and what writes it to the client (`to`)."""

    __slots__ = ("_number", "_source", "_stream", "_tap", "reader", "to")

    def __init__(self, source: _http1.Http1Client, stream: HttpStream, to: _http1.Http1Server) -> None:
        assert stream.flow.response
        self._source, self._stream, self.to = source, stream, to
        self._number, self.reader, self._tap = source.stream_id, source.body_reader, stream.flow.response.stream

    def takes(self, wire: bytes) -> bool:
        """Whether these bytes may go to the client just as they are; if so they were shown to the tap."""
        if not self._is_plain():
            return False
        pieces = self._pieces(wire)
        if pieces is None:
            return False
        if callable(self._tap):
            for piece in pieces:
                self._tap(piece)
        return True

    def _is_plain(self) -> bool:
        """Whether the answer is in the middle of its body, nothing is left over of it and nobody waits for a reply."""
        source, stream, to = self._source, self._stream, self.to
        return (
            source.body_reader is self.reader
            and source.stream_id == self._number
            and source.state == source.read_body
            and not source.buf
            and stream.server_state == stream.state_stream_response_body
            and to.response is stream.flow.response
            and to.conn.state is ConnectionState.OPEN
            and source._paused is None
            and stream._paused is None
            and to._paused is None
        )

    def _pieces(self, wire: bytes) -> list[bytes] | None:
        reader = self.reader
        if isinstance(reader, ChunkedReader):
            is_between = not (reader._bytes_in_chunk or reader._bytes_to_discard or reader._reading_trailer)
            return whole_chunks(wire) if is_between else None
        if isinstance(reader, ContentLengthReader):
            if len(wire) >= reader._remaining:  # its end goes the long way
                return None
            reader._remaining -= len(wire)
        return [wire]


def _way_of(source: _http1.Http1Client) -> ShortWay | None:
    """The way of the answer that is being read there, if there is a short one."""
    if source.stream_id is None or source.state != source.read_body:
        return None
    layer = _http_layer(source.context.layers)
    stream, to = (layer.streams.get(source.stream_id), layer.connections.get(source.context.client)) if layer else (None, None)
    if stream is None or not isinstance(to, _http1.Http1Server) or stream.server_state != stream.state_stream_response_body:
        return None
    return ShortWay(source, stream, to)


def _http_layer(layers: list[Any]) -> HttpLayer | None:
    return next((layer for layer in reversed(layers) if isinstance(layer, HttpLayer)), None)


class Lane:
    """Stands at an upstream's socket and sends on what may take the short way; the rest is read as ever."""

    __slots__ = ("_client", "_connection", "_feed", "_handler", "_reader", "_source", "_way")

    def __init__(self, handler: server.ConnectionHandler, connection: Connection, reader: asyncio.StreamReader) -> None:
        self._handler, self._connection, self._reader, self._feed = handler, connection, reader, reader.feed_data
        writer = handler.transports[handler.client].writer
        assert isinstance(writer, asyncio.StreamWriter)
        self._client = writer.transport
        self._source: _http1.Http1Client | None = None
        self._way: ShortWay | None = None

    def feed_data(self, data: bytes) -> None:
        """Takes the place of the reader's own. While nobody waits in `read` something is under way that must come first."""
        if self._is_free() and (way := self._found()) and way.takes(data):
            self._client.write(data)
            self._handler.timeout_watchdog.register_activity()  # type: ignore[no-untyped-call]
        else:
            self._feed(data)

    def _is_free(self) -> bool:
        """Whether all that came before is on its way, and the client's socket took it."""
        client, waiter = self._client, self._reader._waiter  # type: ignore[attr-defined]
        return waiter is not None and not client.get_write_buffer_size() and not client.is_closing()

    def _found(self) -> ShortWay | None:
        if self._source is None:
            layer = _http_layer(self._handler.layer.context.layers)
            source = getattr(layer.connections.get(self._connection), "child_layer", None) if layer else None
            if not isinstance(source, _http1.Http1Client):
                return None
            self._source = source
        if self._way is None or self._way.reader is not self._source.__dict__.get("body_reader"):
            self._way = _way_of(self._source)
        return self._way


def pass_at_the_socket() -> Undo:
    """Where neither side speaks TLS, an answer's body goes the short way from socket to socket."""
    handle = server.ConnectionHandler.handle_connection

    async def handle_beside(self: server.ConnectionHandler, connection: Connection) -> None:
        reader = self.transports[connection].reader
        if connection is self.client or connection.tls or self.client.tls or not isinstance(reader, asyncio.StreamReader):
            await handle(self, connection)
            return
        reader.feed_data = Lane(self, connection, reader).feed_data  # type: ignore[method-assign, assignment]
        try:
            await handle(self, connection)
        finally:
            del reader.feed_data

    return replace(server.ConnectionHandler, "handle_connection", handle_beside)


def pass_between_layers() -> Undo:
    """Where a side speaks TLS, an answer's body goes the short way from the reader of HTTP to the writer's encryption."""
    handle = _http1.Http1Client._handle_event

    def handle_beside(self: _http1.Http1Client, event: events.Event) -> Commands:
        if isinstance(event, events.DataReceived) and event.data and self.stream_id is not None:
            way: ShortWay | None = self.__dict__.get("short_way")
            if way is None or way.reader is not self.__dict__.get("body_reader"):
                way = self.__dict__["short_way"] = _way_of(self)
            if way is not None and way.takes(event.data):
                yield commands.SendData(way.to.conn, event.data)
                return
        yield from handle(self, event)

    return replace(_http1.Http1Client, "_handle_event", handle_beside)


def pass_shortly() -> Undo:
    """Answers in mid-stream take the short way."""
    return undo_all([pass_at_the_socket(), pass_between_layers()])
