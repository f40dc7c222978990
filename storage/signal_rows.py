"""What exchanges showed of their sender: equal signals are stored once, since most repeat at every request of a session."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import batched

import sqlalchemy as sa

from storage.numbering import Numbering
from storage.records import ExchangeId, Reading
from storage.schema import calls, signal_values, signals
from storage.trace import Trace

type Signal = tuple[str, str]

_ID_OF = sa.select(signal_values.c.id).where(signal_values.c.name == sa.bindparam("name"), signal_values.c.value == sa.bindparam("value"))


class Signals:
    """Stores signals inside the transaction of the connection it is given."""

    def __init__(self, connection: sa.Connection, numbering: Numbering) -> None:
        self._connection = connection
        self._numbering = numbering
        self._ids: dict[Signal, int] = {}

    def save(self, readings: Iterable[Reading]) -> None:
        """The signals of exchanges that have none stored."""
        rows = [
            {"exchange_id": reading.exchange_id, "place": place, "signal_id": self._id(signal)}
            for reading in readings
            for place, signal in enumerate(reading.signals)
        ]
        if rows:
            self._connection.execute(sa.insert(signals), rows)

    def _id(self, signal: Signal) -> int:
        if signal not in self._ids:
            row = {"name": signal[0], "value": signal[1]}
            found = self._connection.scalar(_ID_OF, row)
            if found is None:
                found = self._numbering.take(self._connection, signal_values)
                self._connection.execute(sa.insert(signal_values), row | {"id": found})
            self._ids[signal] = found
        return self._ids[signal]


def load(trace: Trace, ids: Sequence[ExchangeId] = ()) -> Mapping[ExchangeId, tuple[Signal, ...]]:
    """The signals of these exchanges (all when none is given), each in the order in which the reader gave them."""
    query = (
        sa.select(signals.c.exchange_id, signal_values.c.name, signal_values.c.value)
        .join(signal_values, signal_values.c.id == signals.c.signal_id)
        .order_by(signals.c.exchange_id, signals.c.place)
    )
    found: dict[ExchangeId, list[Signal]] = {}
    with trace.engine.connect() as connection:
        for some in batched(ids, 500) if ids else [()]:
            mine = query.where(signals.c.exchange_id.in_(some)) if some else query
            for number, name, value in connection.execute(mine):
                found.setdefault(ExchangeId(number), []).append((name, value))
    return {number: tuple(values) for number, values in found.items()}


def sessions_showing(trace: Trace, names: Sequence[str]) -> Mapping[Signal, frozenset[int]]:
    """(name, value) of these signals -> the sessions in whose exchanges it stood."""
    query = (
        sa.select(signal_values.c.name, signal_values.c.value, calls.c.session_id)
        .join(signals, signals.c.signal_id == signal_values.c.id)
        .join(calls, calls.c.exchange_id == signals.c.exchange_id)
        .where(signal_values.c.name.in_(names), calls.c.session_id.is_not(None))
        .distinct()
    )
    found: dict[Signal, set[int]] = {}
    with trace.engine.connect() as connection:
        for name, value, session in connection.execute(query):
            found.setdefault((name, value), set()).add(session)
    return {signal: frozenset(sessions) for signal, sessions in found.items()}
