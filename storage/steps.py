"""What is still to be stored of each exchange, gathered so that a batch writes each thing once and memory holds each thing once.

Pure. It knows neither the database nor the clock.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from storage.intake import StoredRequest
from storage.records import Arrival, Exchange, Replayed

ROW_BYTES = 1024
"""What an exchange costs in memory beside its bodies."""
_ARRIVAL_BYTES = 64


@dataclass(slots=True)
class Step:
    """One exchange on its way: what of it is stored (`row`, `stored`), and what is not yet (the rest). `exchange`: the latest told."""

    ticket: int
    exchange: Exchange | None = None
    began_s: float = 0.0
    row: int | None = None
    stored: StoredRequest | None = None
    request_pieces: list[bytes] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    request_bytes: int = 0
    response_bytes: int = 0
    has_request: bool = False
    has_head: bool = False
    has_ended: bool = False
    replayed: Replayed | None = None
    lost: str | None = None
    is_waiting: bool = True
    """Whether anything is left to store."""

    @property
    def size(self) -> int:
        """Bytes that wait to be stored."""
        return ROW_BYTES + self.request_bytes + self.response_bytes if self.is_waiting else 0

    def begin(self, exchange: Exchange, at_s: float) -> None:
        """Its head is known."""
        self.exchange, self.began_s = exchange, at_s

    def add_request_piece(self, data: bytes) -> None:
        """A piece of an upload in progress."""
        self.request_pieces.append(data)
        self.request_bytes += len(data)

    def know_request(self, exchange: Exchange) -> None:
        """The whole request is known: its pieces are not needed any more."""
        self.exchange, self.has_request = exchange, True
        self.request_pieces, self.request_bytes = [], len(exchange.request.body)

    def know_head(self, exchange: Exchange) -> None:
        """The head of the response is known."""
        self.exchange, self.has_head = exchange, True

    def add_arrival(self, arrival: Arrival) -> None:
        """A piece of the response's body."""
        self.arrivals.append(arrival)
        self.response_bytes += len(arrival.data) + _ARRIVAL_BYTES

    def end(self, exchange: Exchange, replayed: Replayed | None) -> None:
        """All is known: pieces are not needed any more."""
        self.exchange, self.replayed, self.has_ended = exchange, replayed, True
        self.request_pieces, self.arrivals = [], []
        self.request_bytes, self.response_bytes = len(exchange.request.body), response_size(exchange)

    def absorb(self, news: "Step") -> None:
        """Takes on what was told later."""
        if news.has_ended and news.exchange:
            self.end(news.exchange, news.replayed)
        else:
            self.exchange = news.exchange or self.exchange
            self.has_head |= news.has_head
            self._absorb_bodies(news)
        self.lost = news.lost or self.lost
        self.is_waiting = True

    def _absorb_bodies(self, news: "Step") -> None:
        if news.has_request and news.exchange:
            self.know_request(news.exchange)
        elif not self.has_request:
            self.request_pieces += news.request_pieces
            self.request_bytes += news.request_bytes
        self.arrivals += news.arrivals
        self.response_bytes += news.response_bytes

    def settle(self) -> None:
        """All of it is stored now."""
        self.request_pieces, self.arrivals, self.has_head = [], [], False
        self.request_bytes = self.response_bytes = 0
        self.is_waiting = False


def response_size(exchange: Exchange) -> int:
    """What a response's body takes in memory."""
    pieces = exchange.response.arrivals if exchange.response else ()
    return sum(len(piece.data) for piece in pieces) + _ARRIVAL_BYTES * len(pieces)


class Steps:
    """The exchanges that are open or not yet stored, in order of their beginning."""

    def __init__(self) -> None:
        self._by_ticket: dict[int, Step] = {}

    def add(self, news: Mapping[int, Step]) -> int:
        """Takes on what was told; the bytes that need not wait any more: pieces of what is whole now, or of what was dropped."""
        before = self._size() + sum(step.size for step in news.values())
        for ticket, step in news.items():
            known = self._by_ticket.get(ticket)
            if known:
                known.absorb(step)
            elif step.exchange is not None and not step.lost:
                self._by_ticket[ticket] = step
        return before - self._size()

    def _size(self) -> int:
        return sum(step.size for step in self)

    def drop(self, step: Step) -> None:
        """The exchange is over and stored, or lost."""
        self._by_ticket.pop(step.ticket, None)

    def due(self, began_before_s: float) -> list[Step]:
        """Those with something to store, but for young ones still going on: most exchanges end before they need a journal."""
        return [step for step in self if step.is_waiting and (step.has_ended or step.lost or step.row or step.began_s <= began_before_s)]

    @property
    def has_waiting(self) -> bool:
        """Whether anything is left to store."""
        return any(step.is_waiting for step in self)

    @property
    def has_rows(self) -> bool:
        """Whether an exchange in flight has a row."""
        return any(step.row is not None for step in self)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._by_ticket.values())
