"""What must not be deleted just now: sessions that are being recorded, and all of a trace while a replay plays from it.

Which session an exchange in flight will belong to is not known before it is read: the latest is meant that it goes on from, or that came
over the same connection or under the same label.
"""

import time
from typing import Any

import orjson
import sqlalchemy as sa

from storage import leases
from storage.schema import exchanges, replayed, runs

RECENT_NS = 600_000_000_000
"""While somebody records, a session is taken to go on for so long after its last exchange."""
_SILENT_NS = 3_600_000_000_000
"""A replay on another machine that has sent nothing for so long is taken to have ended."""

_ENDS = """
    CREATE TEMP TABLE ends AS
    SELECT members.unit AS unit, members.last_ns AS last_ns,
           bodies.leaf_id AS leaf, origins.connection AS connection, origins.label AS label
    FROM members JOIN exchanges ON exchanges.id = members.exchange JOIN origins ON origins.id = exchanges.origin_id
    LEFT JOIN bodies ON bodies.id = coalesce(exchanges.request_decoded_body_id, exchanges.request_body_id)
    WHERE members.unit > 0 AND members.run IS NULL
"""
_GOES_ON = """
    WITH RECURSIVE path (id) AS (
        SELECT bodies.leaf_id FROM exchanges JOIN bodies
        ON bodies.id = coalesce(exchanges.request_decoded_body_id, exchanges.request_body_id)
        WHERE exchanges.id = :open AND bodies.leaf_id IS NOT NULL
        UNION SELECT nodes.parent_id FROM path JOIN nodes ON nodes.id = path.id)
    INSERT OR IGNORE INTO temp.held SELECT unit FROM temp.ends WHERE leaf IN path ORDER BY last_ns DESC LIMIT 1
"""
_SAME_PLACE = """
    INSERT OR IGNORE INTO temp.held SELECT ends.unit FROM temp.ends AS ends, exchanges JOIN origins ON origins.id = exchanges.origin_id
    WHERE exchanges.id = :open AND (ends.connection = origins.connection OR ends.label = origins.label) ORDER BY ends.last_ns DESC LIMIT 1
"""


def fill(connection: sa.Connection) -> None:
    """Fills the temporary table `held` with the units among `members` that are in use."""
    connection.exec_driver_sql("DELETE FROM temp.held")
    if playing(connection):
        connection.exec_driver_sql("INSERT INTO temp.held SELECT unit FROM temp.units")
        return
    if leases.living(connection):
        recent = "INSERT INTO temp.held SELECT unit FROM temp.units WHERE last_ns > ?"
        connection.exec_driver_sql(recent, (time.time_ns() - RECENT_NS,))
    connection.exec_driver_sql("INSERT OR IGNORE INTO temp.held SELECT unit FROM temp.members WHERE is_open")
    opened = connection.exec_driver_sql("SELECT exchange FROM temp.members WHERE is_open").scalars().all()
    if opened:
        _hold_what_goes_on(connection, list(opened))


def _hold_what_goes_on(connection: sa.Connection, opened: list[int]) -> None:
    connection.exec_driver_sql("DROP TABLE IF EXISTS temp.ends")
    connection.exec_driver_sql(_ENDS)
    for column in ("leaf", "connection", "label"):
        connection.exec_driver_sql(f"CREATE INDEX temp.ends_{column} ON ends ({column})")
    for number in opened:
        connection.execute(sa.text(_GOES_ON), {"open": number})
        connection.execute(sa.text(_SAME_PLACE), {"open": number})
    connection.exec_driver_sql("DROP TABLE temp.ends")


def playing(connection: sa.Connection) -> list[int]:
    """The runs that somebody is playing."""
    last = sa.select(sa.func.max(exchanges.c.started_ns)).join(replayed, replayed.c.exchange_id == exchanges.c.id)
    last = last.where(replayed.c.run_id == runs.c.id)
    query = sa.select(runs.c.id, runs.c.started_ns, runs.c.settings, last.scalar_subquery()).where(runs.c.ended_ns.is_(None))
    return [row[0] for row in connection.execute(query) if _is_played(orjson.loads(row[2]), row[3] or row[1])]


def _is_played(settings: dict[str, Any], last_ns: int) -> bool:
    player = settings.get("player")
    if player is None or leases.is_gone(player):
        return False
    return leases.is_here(player) or time.time_ns() - last_ns < _SILENT_NS
