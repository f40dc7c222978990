"""Which sessions, lone exchanges and runs of a trace shall go, and letting them go: by name, by age, by the size of what stays.

What goes together is a unit: a session with all its exchanges, side calls and replays; an exchange that no session has, with its replays.
Its age is that of the last thing that happened to it, a replay included. What is being recorded or played stays.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import NamedTuple

import sqlalchemy as sa

from storage import collection, database, deletion, held
from storage.collection import Collected
from storage.deletion import Deleted
from storage.errors import PlayheadError
from storage.pace import Pace
from storage.trace import Trace

_MOST_ROUNDS = 8
"""How often the size is looked at again after deleting for it."""
_CAUTION = 0.7
"""Of what seems to be needed, so much is taken at once: a trace shall not lose more than it must."""
_LEAST_STEP = 0.002
"""Of all exchanges, so many are taken at least before looking again."""

_MEMBERS = """
    CREATE TEMP TABLE members AS
    SELECT e.id AS exchange, coalesce(c.session_id, -coalesce(r.source_exchange_id, e.id)) AS unit,
           e.started_ns + coalesce(e.ended_ns, 0) AS last_ns, e.ended_ns IS NULL AS is_open, r.run_id AS run
    FROM exchanges AS e LEFT JOIN replayed AS r ON r.exchange_id = e.id
    LEFT JOIN calls AS c ON c.exchange_id = coalesce(r.source_exchange_id, e.id)
"""
_UNITS = "CREATE TEMP TABLE units AS SELECT unit, max(last_ns) AS last_ns, count(*) AS size FROM temp.members GROUP BY unit"
"""A unit is a session's id, or a lone exchange's with a minus."""
_DOOMED = """
    SELECT members.exchange FROM temp.members AS members JOIN temp.units AS units ON units.unit = members.unit
    WHERE members.unit IN temp.chosen OR members.run IN temp.doomed_runs
    ORDER BY units.last_ns, units.unit, members.run IS NULL, members.exchange DESC
"""
"""Oldest unit first; in it replays before what they repeat, the latest first: what is left in between goes on from nothing missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What shall go: sessions and runs by id; units whose last sign is before `before_ns`; the oldest until `most_bytes` hold the rest."""

    sessions: Sequence[int] = ()
    runs: Sequence[int] = ()
    before_ns: int | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What went, or would go. `bytes_after` of a rehearsal is an estimate. `held`: sessions that were to go and are in use."""

    deleted: Deleted
    collected: Collected
    bytes_before: int
    bytes_after: int
    sessions: tuple[int, ...]
    runs: tuple[int, ...]
    held: tuple[int, ...]


def clear(trace: Trace, wanted: Wanted) -> Result:
    """Deletes what is wanted, collects what nothing refers to, gives the space back. PlayheadError: named, but in use; locked; full."""
    with _connection(trace) as connection:
        before, pace, rounds = database.used_bytes(connection), Pace(), list[_Round]()
        while len(rounds) < _MOST_ROUNDS:
            chosen = _choose(connection, wanted)
            rounds.append(_Round(chosen, deletion.delete(connection, pace), collection.collect(connection, pace)))
            connection.commit()
            if wanted.most_bytes is None or database.used_bytes(connection) <= wanted.most_bytes or not rounds[-1].deleted.exchanges:
                break
        connection.commit()
        database.give_back(trace.engine, pace.rest)
        return _result(rounds, before, database.used_bytes(connection))


def rehearse(trace: Trace, wanted: Wanted) -> Result:
    """What `clear` would do; nothing is changed. PlayheadError as there."""
    with _connection(trace) as connection:
        before = database.used_bytes(connection)
        chosen = _choose(connection, wanted)
        _let_doomed_be_gone(connection)
        lost, share = collection.search(connection), collection.lost_share(connection)
        exchanges = connection.exec_driver_sql("SELECT count(*) FROM temp.doomed").scalar_one()
        deleted = Deleted(exchanges=exchanges, sessions=len(chosen.sessions), runs=len(chosen.runs))
        after = before - round(share * max(0, before - database.least_bytes(connection)))
        return _result([_Round(chosen, deleted, lost)], before, after)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What stands in the temporary tables."""

    sessions: frozenset[int]
    runs: frozenset[int]
    held: frozenset[int]


class _Round(NamedTuple):
    chosen: _Chosen
    deleted: Deleted
    collected: Collected


def _result(rounds: Sequence[_Round], before: int, after: int) -> Result:
    names = [field.name for field in fields(Collected)]
    return Result(
        deleted=Deleted(
            exchanges=sum(each.deleted.exchanges for each in rounds),
            sessions=sum(each.deleted.sessions for each in rounds),
            runs=sum(each.deleted.runs for each in rounds),
        ),
        collected=Collected(**{name: sum(getattr(each.collected, name) for each in rounds) for name in names}),
        bytes_before=before,
        bytes_after=after,
        sessions=tuple(sorted(frozenset().union(*(each.chosen.sessions for each in rounds)))),
        runs=tuple(sorted(frozenset().union(*(each.chosen.runs for each in rounds)))),
        held=tuple(sorted(rounds[-1].chosen.held)),
    )


@contextmanager
def _connection(trace: Trace) -> Iterator[sa.Connection]:
    """A connection with the temporary tables that the work needs."""
    try:
        with database.deleting(trace.engine) as connection:
            collection.prepare(connection)
            deletion.prepare(connection)
            for name in ("held", "chosen"):
                connection.exec_driver_sql(f"CREATE TEMP TABLE {name} (unit INTEGER PRIMARY KEY)")
            connection.commit()
            yield connection
    except sa.exc.DBAPIError as error:
        raise database.as_trace_error(trace.location, error) from error


def _choose(connection: sa.Connection, wanted: Wanted) -> _Chosen:
    """Fills the temporary tables with what shall go."""
    _list_units(connection)
    held.fill(connection)
    for table in ("chosen", "doomed_sessions", "doomed_runs"):
        connection.exec_driver_sql(f"DELETE FROM temp.{table}")
    _choose_named(connection, wanted)
    if wanted.before_ns is not None:
        older = "INSERT OR IGNORE INTO temp.chosen SELECT unit FROM temp.units WHERE unit NOT IN temp.held AND last_ns < ?"
        connection.exec_driver_sql(older, (wanted.before_ns,))
    if wanted.most_bytes is not None:
        _choose_by_size(connection, wanted.most_bytes)
    _doom(connection)
    spared = _spared(connection, wanted)
    return _Chosen(_ids(connection, "doomed_sessions"), _ids(connection, "doomed_runs"), spared)


def _list_units(connection: sa.Connection) -> None:
    for name in ("members", "units"):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS temp.{name}")
    connection.exec_driver_sql(_MEMBERS)
    connection.exec_driver_sql(_UNITS)


def _choose_named(connection: sa.Connection, wanted: Wanted) -> None:
    in_use = sorted(_ids(connection, "held") & set(wanted.sessions))
    if in_use:
        names = ", ".join(f"s{number}" for number in in_use)
        raise PlayheadError(f"{names}: still being recorded or played", hint="end its recorder or replay first, or wait ten quiet minutes")
    if playing := sorted(set(held.playing(connection)) & set(wanted.runs)):
        raise PlayheadError(f"r{playing[0]} is being played", hint="end it first")
    for number in wanted.sessions:
        connection.exec_driver_sql("INSERT OR IGNORE INTO temp.chosen VALUES (?)", (number,))
    for number in wanted.runs:
        connection.exec_driver_sql("INSERT OR IGNORE INTO temp.doomed_runs VALUES (?)", (number,))


def _choose_by_size(connection: sa.Connection, most_bytes: int) -> None:
    """Takes the oldest units until what stays is about small enough. Some are taken, then it is seen how much would be free."""
    used, least = database.used_bytes(connection), database.least_bytes(connection)
    if most_bytes < least:
        raise PlayheadError(f"a trace that holds nothing takes {least:,} bytes", hint="allow it more than that")
    needed = (used - most_bytes) / max(1, used - least)
    query = "SELECT unit, size FROM temp.units WHERE unit NOT IN temp.held AND unit NOT IN temp.chosen ORDER BY last_ns DESC, unit DESC"
    left = [(row[0], row[1]) for row in connection.exec_driver_sql(query)] if needed > 0 else []
    everything = connection.exec_driver_sql("SELECT count(*) FROM temp.members").scalar_one()
    while left and (missing := needed - _share_of_doomed(connection)) > 0:
        wanted, taken = max(everything * missing * _CAUTION, everything * _LEAST_STEP), 0
        while left and taken < max(1, wanted):
            unit, size = left.pop()
            connection.exec_driver_sql("INSERT INTO temp.chosen VALUES (?)", (unit,))
            taken += size


def _share_of_doomed(connection: sa.Connection) -> float:
    _doom(connection)
    _let_doomed_be_gone(connection)
    collection.search(connection)
    return collection.lost_share(connection)


def _let_doomed_be_gone(connection: sa.Connection) -> None:
    connection.exec_driver_sql(f"DELETE FROM temp.{collection.GONE}")
    connection.exec_driver_sql(f"INSERT INTO temp.{collection.GONE} SELECT exchange FROM temp.doomed")


def _doom(connection: sa.Connection) -> None:
    """What is chosen, with the runs that are left with nothing."""
    connection.exec_driver_sql("DELETE FROM temp.doomed")
    connection.exec_driver_sql(f"INSERT INTO temp.doomed (exchange) {_DOOMED}")
    connection.exec_driver_sql("INSERT OR IGNORE INTO temp.doomed_sessions SELECT unit FROM temp.chosen WHERE unit > 0")
    connection.exec_driver_sql(
        "INSERT OR IGNORE INTO temp.doomed_runs SELECT run FROM temp.members WHERE run IS NOT NULL"
        " GROUP BY run HAVING count(*) = count(CASE WHEN unit IN temp.chosen THEN 1 END)"
    )


def _spared(connection: sa.Connection, wanted: Wanted) -> frozenset[int]:
    """Sessions that would have had to go, were they not in use."""
    if wanted.before_ns is None and wanted.most_bytes is None:
        return frozenset()
    until = connection.exec_driver_sql("SELECT max(last_ns) FROM temp.units WHERE unit IN temp.chosen").scalar_one()
    until = max(wanted.before_ns or 0, until or 0)
    query = "SELECT unit FROM temp.units WHERE unit > 0 AND unit IN temp.held AND last_ns < ?"
    return frozenset(connection.exec_driver_sql(query, (until,)).scalars())


def _ids(connection: sa.Connection, table: str) -> frozenset[int]:
    return frozenset(connection.exec_driver_sql(f"SELECT * FROM temp.{table}").scalars())
