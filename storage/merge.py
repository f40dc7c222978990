"""Brings other traces into one: exchanges through the prefix tree, replays and their runs under new ids, names that users gave.

The same exchange is never brought twice: it is known by its times and its content, however many traces it has been through; of several
alike, as many are brought as are missing. What is derived is not copied, it is read again. A source is only read; a merge that is killed
leaves a whole trace, and goes on when it is asked again.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa

from storage import database, exchanges, held, leases
from storage.errors import DamagedError, NotFoundError
from storage.intake import Intake
from storage.numbering import Numbering
from storage.records import Exchange, ExchangeId, FailureKind, Replayed, RunId, Splitter
from storage.schema import calls, replayed, runs
from storage.schema import exchanges as rows
from storage.trace import Trace

_ROWS = 128
_BATCH_BYTES = 4 << 20
"""Bodies in one transaction: a recorder beside it waits for no more than these take."""


class _Key(NamedTuple):
    """What makes an exchange the one it is. `turn`: of a replay, its run, copy and the exchange it repeats, by their ids here."""

    started_ns: int
    ended_ns: int | None
    method: str
    url: str
    status: int | None
    request_sha256: bytes
    response_sha256: bytes
    turn: tuple[int, int, int] | None


_KEY = (rows.c.started_ns, rows.c.ended_ns, rows.c.method, rows.c.url, rows.c.status, rows.c.request_sha256, rows.c.response_sha256)
_TURN = (replayed.c.run_id, replayed.c.copy, replayed.c.source_exchange_id, replayed.c.ready_ns)
_SOURCE = (
    sa.select(rows.c.id, rows.c.recorder_run_id, *_TURN, *_KEY)
    .outerjoin(replayed, replayed.c.exchange_id == rows.c.id)
    .where(rows.c.id > sa.bindparam("last"))
    .order_by(rows.c.id)
    .limit(_ROWS)
)
_ALIKE = (
    sa.select(rows.c.id, *_TURN[:3], *_KEY)
    .outerjoin(replayed, replayed.c.exchange_id == rows.c.id)
    .where(rows.c.started_ns.in_(sa.bindparam("starts", expanding=True)), rows.c.id <= sa.bindparam("until"))
    .order_by(rows.c.id)
)


@dataclass(slots=True)
class Merged:
    """What came of one source. `ids`: by the source's exchange id the one it has here, 0 where it has none. `earliest_ns`: of what came."""

    exchanges: int = 0
    known: int = 0
    """Exchanges that were here already."""
    open: int = 0
    """Exchanges left for another time: in flight, or of a replay that is being played."""
    damaged: list[str] = field(default_factory=list)
    runs: int = 0
    earliest_ns: int | None = None
    ids: "array[int]" = field(default_factory=lambda: array("q"))


def merge(into: Trace, source: Trace, splitter: Splitter) -> Merged:
    """Brings in all that `into` lacks. TraceError: locked, full."""
    try:
        return _Merging(into, source, splitter).work()
    except sa.exc.DBAPIError as error:
        raise database.as_trace_error(into.location, error) from error


def last_read_ns(trace: Trace) -> int | None:
    """When the latest exchange began that was read: what begins earlier and comes later changes how those behind it are to be read."""
    with trace.engine.connect() as connection:
        found: int | None = connection.scalar(sa.select(sa.func.max(rows.c.started_ns)).join(calls, calls.c.exchange_id == rows.c.id))
    return found


class _Coming(NamedTuple):
    """An exchange of the source that is missing here; `size`: of its bodies."""

    number: int
    exchange: Exchange
    turn: Replayed | None
    size: int


class _Merging:
    """One source on its way into a trace."""

    def __init__(self, into: Trace, source: Trace, splitter: Splitter) -> None:
        self._into, self._source = into, source
        self._numbering = Numbering()
        self._intake = Intake(into.codec, splitter, self._numbering)
        self._merged = Merged()
        self._runs: dict[int, int] = {}
        with into.engine.connect() as connection:
            self._until = connection.scalar(sa.select(sa.func.max(rows.c.id))) or 0
        self._taken = bytearray(self._until // 8 + 1)
        """A bit for each exchange that was here before: whether one of the source's is that one."""

    def work(self) -> Merged:
        """Recorded exchanges first: replays refer to them."""
        with self._source.engine.connect() as connection:
            highest = connection.scalar(sa.select(sa.func.max(rows.c.id))) or 0
            self._living = leases.living(connection)
            playing = frozenset(held.playing(connection))
        self._merged.ids = array("q", bytes(8 * (highest + 1)))
        self._bring(lambda row: row.run_id is None)
        self._bring_runs(playing)
        self._bring(lambda row: row.run_id is not None)
        self._end_runs()
        return self._merged

    def _bring(self, is_meant: Callable[[Any], bool]) -> None:
        for batch in self._batches():
            self._take([row for row in batch if row.id < len(self._merged.ids) and is_meant(row)])

    def _batches(self) -> Iterator[Sequence[Any]]:
        """The source's rows in order of id; no transaction of it stays open meanwhile."""
        last = 0
        while True:
            with self._source.engine.connect() as connection:
                batch = connection.execute(_SOURCE, {"last": last}).all()
            if not batch:
                return
            yield batch
            last = batch[-1].id

    # ---- exchanges ----

    def _take(self, batch: Sequence[Any]) -> None:
        """Brings those of a batch that are missing here."""
        alike = self._alike({row.started_ns for row in batch})
        missing: dict[int, Replayed | None] = {}
        for row in batch:
            turn = self._turn(row)
            if self._is_open(row) or (row.run_id is not None and turn is None):
                self._merged.open += 1
            elif row.ended_ns is None or not self._is_here(row.id, _key_of(row, _turn_key(turn)), alike):
                missing[row.id] = turn
        waiting: list[_Coming] = []
        for number, exchange in self._loaded(list(missing)):
            if self._is_interrupted_here(number, exchange, missing[number], alike):
                continue
            waiting.append(_Coming(number, exchange, missing[number], _size(exchange)))
            if sum(each.size for each in waiting) > _BATCH_BYTES:
                self._store(waiting)
        self._store(waiting)

    def _turn(self, row: Any) -> Replayed | None:
        """What a replay repeats, under the ids it has here; None where that is not here, and of what is no replay."""
        source = self._merged.ids[row.source_exchange_id] if row.run_id in self._runs else 0
        if not source:
            return None
        return Replayed(run_id=RunId(self._runs[row.run_id]), source_exchange=ExchangeId(source), copy=row.copy, ready_ns=row.ready_ns)

    def _is_open(self, row: Any) -> bool:
        return row.ended_ns is None and row.recorder_run_id in self._living

    def _alike(self, starts: set[int]) -> dict[_Key, list[int]]:
        """What was here before and began at these times."""
        found: dict[_Key, list[int]] = {}
        with self._into.engine.connect() as connection:
            for row in connection.execute(_ALIKE, {"starts": sorted(starts), "until": self._until}):
                turn = None if row.run_id is None else (row.run_id, row.copy, row.source_exchange_id)
                found.setdefault(_key_of(row, turn), []).append(row.id)
        return found

    def _is_here(self, number: int, key: _Key, alike: dict[_Key, list[int]]) -> bool:
        """Whether one that is here is this one, and no other of the source's."""
        for here in alike.get(key, ()):
            if not self._taken[here // 8] & 1 << here % 8:
                self._taken[here // 8] |= 1 << here % 8
                self._merged.ids[number] = here
                self._merged.known += 1
                return True
        return False

    def _is_interrupted_here(self, number: int, exchange: Exchange, turn: Replayed | None, alike: dict[_Key, list[int]]) -> bool:
        """Of an exchange whose recorder was killed it must be read what came of it before it can be known again."""
        failure = exchange.failure
        if failure is None or failure.kind is not FailureKind.INTERRUPTED:
            return False
        return self._is_here(number, _key(exchange, _turn_key(turn)), alike)

    def _loaded(self, numbers: Sequence[int]) -> Iterator[tuple[int, Exchange]]:
        """Exchanges of the source, but for those that cannot be put together, or were deleted meanwhile."""
        at = 0
        while at < len(numbers):
            try:
                for exchange in exchanges.load_many(self._source, [ExchangeId(number) for number in numbers[at:]]):
                    yield numbers[at], exchange
                    at += 1
            except NotFoundError:
                at += 1
            except DamagedError as error:
                self._merged.damaged.append(str(error))
                at += 1

    def _store(self, waiting: list[_Coming]) -> None:
        """One transaction."""
        if not waiting:
            return
        kept: list[int] = []
        with self._into.engine.begin() as connection:
            database.take_write_lock(connection)
            self._intake.begin(connection)
            for each in waiting:
                kept.append(self._intake.put(connection, each.exchange))
                if each.turn is not None:
                    self._intake.bind(connection, kept[-1], each.turn)
        for each, here in zip(waiting, kept, strict=True):
            self._merged.ids[each.number] = here
            began_ns = each.exchange.started_ns
            self._merged.earliest_ns = min(began_ns, self._merged.earliest_ns or began_ns)
        self._merged.exchanges += len(kept)
        waiting.clear()

    # ---- runs ----

    def _bring_runs(self, playing: frozenset[int]) -> None:
        """A run is the same where it began at the same time, against the same target, with the same settings."""
        with self._source.engine.connect() as connection:
            found = [row for row in connection.execute(sa.select(runs).order_by(runs.c.id)) if row.id not in playing]
        with self._into.engine.begin() as connection:
            database.take_write_lock(connection)
            self._numbering.restart()
            for row in found:
                same = sa.and_(runs.c.started_ns == row.started_ns, runs.c.target == row.target, runs.c.settings == row.settings)
                here = connection.scalar(sa.select(runs.c.id).where(same))
                if here is None:
                    here = self._numbering.take(connection, runs)
                    new = {"id": here, "started_ns": row.started_ns, "target": row.target, "settings": row.settings}
                    connection.execute(sa.insert(runs), new)
                    self._merged.runs += 1
                self._runs[row.id] = here

    def _end_runs(self) -> None:
        """Figures come last: until then a run reads as broken off."""
        with self._source.engine.connect() as source:
            ended = source.execute(sa.select(runs.c.id, runs.c.ended_ns, runs.c.summary).where(runs.c.ended_ns.is_not(None))).all()
        with self._into.engine.begin() as connection:
            database.take_write_lock(connection)
            for row in ended:
                change = sa.update(runs).where(runs.c.id == self._runs.get(row.id, 0), runs.c.ended_ns.is_(None))
                connection.execute(change.values(ended_ns=row.ended_ns, summary=row.summary))


def _turn_key(turn: Replayed | None) -> tuple[int, int, int] | None:
    return None if turn is None else (turn.run_id, turn.copy, turn.source_exchange)


def _key_of(row: Any, turn: tuple[int, int, int] | None) -> _Key:
    return _Key._make((*row[-len(_KEY) :], turn))


def _key(exchange: Exchange, turn: tuple[int, int, int] | None) -> _Key:
    """Of an exchange whose row does not have its final form."""
    request, response = exchange.request, exchange.response
    return _Key(
        exchange.started_ns, exchange.ended_ns, request.method, request.url, response.status if response else None,
        hashlib.sha256(request.body).digest(), hashlib.sha256(response.body if response else b"").digest(), turn,
    )  # fmt: skip


def _size(exchange: Exchange) -> int:
    response = exchange.response
    return len(exchange.request.body) + (sum(len(piece.data) for piece in response.arrivals) if response else 0)
