"""The writer's work on the database: stores what steps have gathered, a transaction at a time, and says what became of it.

Used by the writer's thread alone. A batch that fails for a passing reason stays as it is and is tried again; one exchange that cannot
be stored at all does not take others with it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import sqlalchemy as sa

from storage import database, journal, leases
from storage.errors import PlayheadError, StorageFullError, TraceError
from storage.exchanges import interrupted, read_many
from storage.intake import Intake, StoredRequest
from storage.numbering import Numbering
from storage.records import Arrival, Exchange, ExchangeId, Splitter
from storage.schema import exchanges
from storage.steps import Step, Steps
from storage.trace import Trace

_BATCH_BYTES = 32 << 20
"""Bodies in one transaction: other recorders wait no longer than these take."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why nothing can be stored just now. `kind` names it, `text` is for the user."""

    kind: str
    text: str
    is_full: bool
    is_gone: bool = False

    @property
    def costs_time(self) -> bool:
        """Whether a vain attempt waits: for a lock, for a disk."""
        return not (self.is_full or self.is_gone)

    def error(self) -> PlayheadError:
        """The trouble as an error to raise."""
        if self.is_full:
            return StorageFullError(self.text, hint="free some space; recording goes on when there is some")
        if self.is_gone:
            return TraceError(self.text, hint="put it back where it was, or record anew")
        return TraceError(self.text, hint="close what holds the trace open, or record into another")


_GONE = Trouble("gone", "the trace was deleted, moved or replaced while it was recorded into", is_full=False, is_gone=True)


@dataclass(slots=True)
class Outcome:
    """What one round of storing did. `lost` counts exchanges given up in it; `said` is for the user."""

    bytes_done: int = 0
    lost: int = 0
    said: list[str] = field(default_factory=list)
    trouble: Trouble | None = None


class Storing:
    """One recorder's lease on a trace and all it has yet to store. TraceError when the lease cannot be taken."""

    def __init__(self, trace: Trace, splitter: Splitter) -> None:
        self._trace = trace
        self._numbering = Numbering()
        self._intake = Intake(trace.codec, splitter, self._numbering)
        self._steps = Steps()
        try:
            with trace.engine.begin() as connection:
                database.take_write_lock(connection)
                self._lease = leases.take(connection, self._numbering)
                self._end_interrupted(connection)
        except sa.exc.DBAPIError as error:
            raise database.as_trace_error(trace.location, error) from error

    @property
    def has_waiting(self) -> bool:
        """Whether anything is left to store."""
        return self._steps.has_waiting

    @property
    def rest_s(self) -> float | None:
        """How long to rest when nothing waits; None: until there is something."""
        return leases.BEAT_S if self._steps.has_rows else None

    def take(self, news: Mapping[int, Step]) -> int:
        """Takes on what callers told; the bytes that need not wait any more."""
        return self._steps.add(news)

    def store(self, began_before_s: float) -> Outcome:
        """Stores what is due: all but exchanges still going on that began later than that. Gives a sign of life in any case."""
        outcome = Outcome()
        for batch in _batches(self._steps.due(began_before_s)) or [[]]:
            self._store_batch(batch, outcome)
            if outcome.trouble:
                break
        return outcome

    def end(self, trouble: Trouble | None = None) -> Outcome:
        """A last attempt on all that waits; then the lease is given back, and what is still open ends as interrupted.

        `trouble`: what has kept the writer from storing up to now. Where that means waiting, nothing is attempted any more.
        """
        is_hopeless = trouble is not None and not trouble.is_full
        outcome = Outcome(trouble=trouble) if is_hopeless else self.store(float("inf"))
        outcome.lost += sum(1 for step in self._steps if step.is_waiting and not step.lost)
        if is_hopeless:
            return outcome
        with suppress(sa.exc.DBAPIError), self._trace.engine.begin() as connection:
            leases.end(connection, self._lease)
            self._intake.begin(connection)
            self._end_interrupted(connection)
        return outcome

    def _store_batch(self, batch: Sequence[Step], outcome: Outcome) -> None:
        if not self._trace.is_in_place():  # SQLite would go on writing into a file that nobody can find
            outcome.trouble = _GONE
            return
        try:
            self._commit(batch)
        except Exception as error:
            self._intake.forget()
            if isinstance(error, sa.exc.DBAPIError) and database.is_transient(error):
                outcome.trouble = _trouble(error)
            elif len(batch) == 1:
                self._give_up(batch[0], error, outcome)
            else:
                for step in batch:
                    self._store_batch([step], outcome)
            return
        outcome.bytes_done += sum(step.size for step in batch)
        for step in batch:
            step.settle()
            if step.has_ended or step.lost:
                self._steps.drop(step)

    def _commit(self, batch: Sequence[Step]) -> None:
        with self._trace.engine.begin() as connection:
            leases.beat(connection, self._lease)  # a write first: it waits for the lock, and what is read after it stays true
            self._intake.begin(connection)
            kept = [self._apply(connection, step) for step in batch]
        for step, (row, stored) in zip(batch, kept, strict=True):
            step.row, step.stored = row, stored

    def _give_up(self, step: Step, error: Exception, outcome: Outcome) -> None:
        _log.error("an exchange could not be stored", exc_info=error)
        outcome.lost += 1
        outcome.bytes_done += step.size
        outcome.said.append(f"an exchange could not be kept: {error}")
        self._steps.drop(step)

    def _apply(self, connection: sa.Connection, step: Step) -> tuple[int | None, StoredRequest | None]:
        if step.lost:
            if step.row is not None:
                self._cut_short(connection, step.row, step.lost)
            return step.row, None
        assert step.exchange
        if step.has_ended:
            return self._finish(connection, step, step.exchange), None
        row = step.row or self._intake.open(connection, step.exchange, self._lease)
        return row, self._note(connection, row, step, step.exchange)

    def _finish(self, connection: sa.Connection, step: Step, exchange: Exchange) -> int:
        row = step.row
        if row is None:
            row = self._intake.put(connection, exchange)
        else:
            self._intake.close(connection, row, exchange, step.stored)
        if step.replayed:
            self._intake.bind(connection, row, step.replayed)
        return row

    def _note(self, connection: sa.Connection, row: int, step: Step, exchange: Exchange) -> StoredRequest | None:
        """What is new of an exchange in flight."""
        stored = step.stored
        if step.has_request and stored is None:
            stored = self._intake.know_request(connection, row, exchange)
        elif step.request_pieces and stored is None:
            self._intake.note(connection, row, journal.REQUEST, [Arrival(0, piece) for piece in step.request_pieces])
        if step.has_head and exchange.response:
            self._intake.know_head(connection, row, exchange.response)
        if step.arrivals:
            self._intake.note(connection, row, journal.RESPONSE, step.arrivals)
        return stored

    def _end_interrupted(self, connection: sa.Connection) -> None:
        """Exchanges whose recorder is gone take their final form."""
        living = leases.living(connection)
        query = sa.select(exchanges.c.id, exchanges.c.recorder_run_id).where(exchanges.c.ended_ns.is_(None))
        for number, lease in connection.execute(query).all():
            if lease not in living:
                self._cut_short(connection, number)

    def _cut_short(self, connection: sa.Connection, number: int, why: str = "the recorder stopped before this ended") -> None:
        exchange = next(read_many(connection, self._trace.codec, (ExchangeId(number),)))
        self._intake.close(connection, number, interrupted(exchange, why), None)


def _batches(steps: Iterable[Step]) -> list[list[Step]]:
    """Steps in order, each batch of a bounded size."""
    found: list[list[Step]] = []
    size = _BATCH_BYTES
    for step in steps:
        if size >= _BATCH_BYTES:
            found.append([])
            size = 0
        found[-1].append(step)
        size += step.size
    return found


def _trouble(error: sa.exc.DBAPIError) -> Trouble:
    if database.is_full(error):
        return Trouble("full", "the disk is full, or the file as large as it may be: nothing more can be recorded", is_full=True)
    kind = str(error.orig)
    return Trouble(kind, f"the trace cannot be written: {kind}", is_full=False)
