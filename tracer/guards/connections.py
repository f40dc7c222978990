"""How many connections there may be, and that each is closed."""

import asyncio
import collections
from typing import Any

from mitmproxy.connection import Connection
from mitmproxy.proxy import server

from tracer.guards.patching import Undo, replace

CONNECTIONS_AT_ONCE = 4096
"""Upstream connections that one client connection may hold; mitmproxy's 5 makes the sixth concurrent stream wait for an earlier one."""


def allow_many_streams() -> Undo:
    """Concurrent HTTP/2 streams of one client never wait for each other."""
    make = server.ConnectionHandler.__init__

    def make_with_many(self: server.ConnectionHandler, context: Any) -> None:
        make(self, context)
        self.max_conns = collections.defaultdict(lambda: asyncio.Semaphore(CONNECTIONS_AT_ONCE))

    return replace(server.ConnectionHandler, "__init__", make_with_many)


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

    return replace(server.ConnectionHandler, "handle_connection", handle_and_close)
