"""Runs: one row for each replay, with what it was told and what came of it."""

from typing import Any

import orjson
import sqlalchemy as sa

from storage import database
from storage.errors import NotFoundError
from storage.numbering import Numbering
from storage.records import Run, RunId
from storage.schema import runs
from storage.trace import Trace


def create(trace: Trace, *, target: str, settings: dict[str, Any], started_ns: int) -> Run:
    """Notes that a run begins; `settings` must be JSON."""
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        number = Numbering().take(connection, runs)
        row = {"id": number, "started_ns": started_ns, "target": target, "settings": orjson.dumps(settings).decode()}
        connection.execute(sa.insert(runs), row)
    return load(trace, RunId(number))


def finish(trace: Trace, run_id: RunId, *, ended_ns: int, summary: dict[str, Any]) -> None:
    """Notes that a run has ended, with its figures. NotFoundError."""
    change = sa.update(runs).where(runs.c.id == run_id).values(ended_ns=ended_ns, summary=orjson.dumps(summary).decode())
    with trace.engine.begin() as connection:
        if connection.execute(change).rowcount == 0:
            raise _not_found(run_id)


def load(trace: Trace, run_id: RunId) -> Run:
    """One run; NotFoundError."""
    with trace.engine.connect() as connection:
        row = connection.execute(sa.select(runs).where(runs.c.id == run_id)).first()
    if row is None:
        raise _not_found(run_id)
    return _run(row)


def listing(trace: Trace) -> list[Run]:
    """All runs in order of start."""
    with trace.engine.connect() as connection:
        return [_run(row) for row in connection.execute(sa.select(runs).order_by(runs.c.started_ns, runs.c.id))]


def _run(row: sa.Row[Any]) -> Run:
    return Run(
        id=RunId(row.id),
        started_ns=row.started_ns,
        ended_ns=row.ended_ns,
        target=row.target,
        settings=orjson.loads(row.settings),
        summary=None if row.summary is None else orjson.loads(row.summary),
    )


def _not_found(run_id: int) -> NotFoundError:
    return NotFoundError(f"there is no run r{run_id} in this trace", hint="list them: playhead runs")
