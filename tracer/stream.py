"""One exchange on its way through the recorder: the taps that see its bytes, and whoever keeps them.

It does not know what carries the bytes, nor what they mean. What goes wrong with the record never touches the traffic.
"""

from collections.abc import Callable
from typing import Protocol

from storage.records import Arrival, Exchange, Headers
from tracer.assembler import Assembler
from tracer.clock import monotonic_ns


class Sink(Protocol):
    """Whoever keeps exchanges (`storage.writer.Writer`); none of these may wait for a disk."""

    def begin(self, exchange: Exchange) -> int: ...
    def request_piece(self, ticket: int, data: bytes) -> None: ...
    def request_complete(self, ticket: int, exchange: Exchange) -> None: ...
    def response_head(self, ticket: int, exchange: Exchange) -> None: ...
    def arrival(self, ticket: int, arrival: Arrival) -> None: ...
    def finish(self, ticket: int, exchange: Exchange) -> None: ...


class Stream:
    """An assembler and its sink, which calls the exchange by `ticket`."""

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
                self.request_data(monotonic_ns(), data)
            except Exception as wrong:  # mitmproxy drops the client's bytes when a tap raises
                self._trouble(wrong)
            return data
        return []

    def response_tap(self, data: bytes) -> bytes | list[bytes]:
        """Sees one read of the answer; stamped first of all."""
        at_ns = monotonic_ns()
        if data:
            try:
                self.response_data(at_ns, data)
            except Exception as wrong:  # mitmproxy drops the client's bytes when a tap raises
                self._trouble(wrong)
            return data
        return []

    def request_data(self, at_ns: int, data: bytes) -> None:
        """A piece of the request's body."""
        self.assembler.request_data(at_ns, data)
        self._sink.request_piece(self.ticket, data)

    def request_end(self, at_ns: int) -> None:
        """The whole request is known."""
        self.assembler.request_end(at_ns)
        self._sink.request_complete(self.ticket, self.assembler.exchange())

    def response_head(self, at_ns: int, status: int, headers: Headers) -> None:
        """The head of the answer is known."""
        self.assembler.response_head(at_ns, status, headers)
        self._sink.response_head(self.ticket, self.assembler.exchange())

    def response_data(self, at_ns: int, data: bytes) -> None:
        """A piece of the answer's body."""
        self._sink.arrival(self.ticket, self.assembler.response_data(at_ns, data))

    def finish(self, at_ns: int) -> None:
        """The exchange is over, if it was not yet; all of it is told."""
        self.assembler.end(at_ns)
        self._sink.finish(self.ticket, self.assembler.exchange())
