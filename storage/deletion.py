"""Deletes exchanges with all that is derived of them, sessions and runs that are left with none; a little in each transaction.

What goes stands in temporary tables (`prepare`): `doomed` in the order in which it shall go. Whoever is killed, what was not yet deleted
is whole. Bodies and what they are made of are collected afterwards (`storage.collection`). It does not know why something goes.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from storage.pace import Pace

_ROWS_OF = ("journal", "signals", "trails", "ideal", "replayed", "calls")
_IDEAL_ROWS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """How much has gone."""

    exchanges: int = 0
    sessions: int = 0
    runs: int = 0


def prepare(connection: sa.Connection) -> None:
    """Makes the temporary tables, on a connection of `database.deleting`."""
    connection.exec_driver_sql("CREATE TEMP TABLE doomed (place INTEGER PRIMARY KEY, exchange INTEGER NOT NULL UNIQUE)")
    connection.exec_driver_sql("CREATE TEMP TABLE doomed_sessions (id INTEGER PRIMARY KEY)")
    connection.exec_driver_sql("CREATE TEMP TABLE doomed_runs (id INTEGER PRIMARY KEY)")
    connection.exec_driver_sql("CREATE TEMP TABLE batch (id INTEGER PRIMARY KEY)")


def delete(connection: sa.Connection, pace: Pace) -> Deleted:
    """Deletes what `doomed`, `doomed_sessions` and `doomed_runs` name. A session or run goes with its last exchange."""
    before = {name: _count(connection, name) for name in ("sessions", "runs")}
    exchanges = 0
    if connection.exec_driver_sql("SELECT 1 FROM temp.doomed LIMIT 1").first():
        _let_go(connection, pace)
    while batch := _next(connection, pace):
        exchanges += batch
    with pace.step(connection):
        _end_parents(connection)
    after = {name: _count(connection, name) for name in before}
    if exchanges:
        _forget_shares(connection, pace)
    return Deleted(exchanges=exchanges, **{name: before[name] - after[name] for name in before})


def _count(connection: sa.Connection, name: str) -> int:
    """How many of those that shall go are there."""
    return int(connection.exec_driver_sql(f"SELECT count(*) FROM {name} WHERE id IN temp.doomed_{name}").scalar_one())


def _let_go(connection: sa.Connection, pace: Pace) -> None:
    """What stays refers no more to what goes."""
    gone = "(SELECT exchange FROM temp.doomed)"
    with pace.step(connection):
        connection.exec_driver_sql(f"UPDATE calls SET retry_of = NULL WHERE retry_of IN {gone}")
        for column in ("compaction_of", "compacted_by"):
            connection.exec_driver_sql(f"UPDATE calls SET {column} = NULL WHERE {column} IN {gone}")
        connection.exec_driver_sql(f"UPDATE threads SET joined_exchange_id = NULL WHERE joined_exchange_id IN {gone}")
        connection.exec_driver_sql("UPDATE sessions SET forked_from_id = NULL WHERE forked_from_id IN temp.doomed_sessions")
        connection.exec_driver_sql(f"UPDATE threads SET parent_exchange_id = NULL WHERE parent_exchange_id IN {gone}")
        connection.exec_driver_sql(
            "UPDATE threads SET parent_thread_id = NULL WHERE session_id NOT IN temp.doomed_sessions"
            " AND parent_thread_id IN (SELECT id FROM threads WHERE session_id IN temp.doomed_sessions)"
        )


def _next(connection: sa.Connection, pace: Pace) -> int:
    """One transaction; how many exchanges went, 0: none is left."""
    connection.commit()
    if not connection.exec_driver_sql("SELECT 1 FROM temp.doomed LIMIT 1").first():
        return 0
    with pace.step(connection) as most:
        connection.exec_driver_sql("DELETE FROM temp.batch")
        connection.exec_driver_sql(f"INSERT INTO temp.batch SELECT exchange FROM temp.doomed ORDER BY place LIMIT {most}")
        for table in _ROWS_OF:
            connection.exec_driver_sql(f"DELETE FROM {table} WHERE exchange_id IN temp.batch")
        connection.exec_driver_sql("DELETE FROM exchanges WHERE id IN temp.batch")
        count = connection.exec_driver_sql("DELETE FROM temp.doomed WHERE exchange IN temp.batch").rowcount
        _end_parents(connection)
    return count


def _end_parents(connection: sa.Connection) -> None:
    """Sessions and runs that shall go, and have no exchange any more."""
    over = "SELECT id FROM temp.doomed_sessions WHERE id NOT IN (SELECT session_id FROM calls WHERE session_id IN temp.doomed_sessions)"
    connection.exec_driver_sql(f"DELETE FROM recall WHERE session_id IN ({over})")
    connection.exec_driver_sql(f"DELETE FROM threads WHERE session_id IN ({over})")
    connection.exec_driver_sql(f"DELETE FROM sessions WHERE id IN ({over})")
    played = "SELECT run_id FROM replayed WHERE run_id IN temp.doomed_runs"
    connection.exec_driver_sql(f"DELETE FROM runs WHERE id IN temp.doomed_runs AND id NOT IN ({played})")


def _forget_shares(connection: sa.Connection, pace: Pace) -> None:
    """What later exchanges could have reused of those that are gone: the ledger counts again when it is next asked."""
    while True:
        with pace.step(connection) as most:
            some = f"SELECT exchange_id FROM ideal LIMIT {max(most, _IDEAL_ROWS)}"
            if not connection.exec_driver_sql(f"DELETE FROM ideal WHERE exchange_id IN ({some})").rowcount:
                return
