"""What the writer still has to store of each exchange: what callers queued, gathered so that a batch writes each thing once.

Pure. It knows neither the database nor the clock.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from storage.intake import StoredRequest
from storage.records import Arrival, Exchange, Replayed


class Told(NamedTuple):
    """One thing a caller said. Exactly one of the fields after `size` is set, but `replayed`, which goes with `ended`."""

    ticket: int
    size: int
    at_s: float = 0.0
    began: Exchange | None = None
    request_piece: bytes | None = None
    request: Exchange | None = None
    head: Exchange | None = None
    arrival: Arrival | None = None
    ended: Exchange | None = None
    replayed: Replayed | None = None
    lost: str | None = None


@dataclass(slots=True)
class Step:
    """One exchange on its way: what of it is stored (`row`, `stored`), and what is not yet (the rest)."""

    ticket: int
    exchange: Exchange
    began_s: float
    row: int | None = None
    stored: StoredRequest | None = None
    size: int = 0
    request_pieces: list[bytes] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    has_request: bool = False
    has_head: bool = False
    has_ended: bool = False
    replayed: Replayed | None = None
    lost: str | None = None
    is_waiting: bool = True
    """Whether anything is left to store."""

    def settle(self) -> None:
        """All of it is stored now."""
        self.request_pieces, self.arrivals, self.has_head = [], [], False
        self.size, self.is_waiting = 0, False


class Steps:
    """The exchanges that are open or not yet stored, in order of their beginning."""

    def __init__(self) -> None:
        self._by_ticket: dict[int, Step] = {}

    def add(self, told: Iterable[Told]) -> None:
        """Gathers what was told. What concerns an exchange already dropped is ignored."""
        for each in told:
            step = self._by_ticket.get(each.ticket)
            if step is None:
                exchange = each.began or each.ended
                if exchange is None:
                    continue
                step = self._by_ticket[each.ticket] = Step(each.ticket, exchange, each.at_s)
            _gather(step, each)

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


def _gather(step: Step, told: Told) -> None:
    step.size += told.size
    step.is_waiting = True
    if told.request_piece is not None:
        step.request_pieces.append(told.request_piece)
    elif told.arrival is not None:
        step.arrivals.append(told.arrival)
    elif told.request is not None:
        step.exchange, step.has_request = told.request, True
    elif told.head is not None:
        step.exchange, step.has_head = told.head, True
    elif told.ended is not None:
        step.exchange, step.replayed, step.has_ended = told.ended, told.replayed, True
    elif told.lost is not None:
        step.lost = told.lost
