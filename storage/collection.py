"""Collects what nothing refers to any more: bodies, then nodes of the prefix tree, then elements; origins and signals; leases of the dead.

First what is lost is found, which only reads; then it is deleted, a little in each transaction, leaving out what somebody came to refer to
meanwhile: rows are never given an old id, so that all that came meanwhile is known by its id. After each transaction the trace is whole.
"""

from dataclasses import dataclass

import sqlalchemy as sa

from storage import leases
from storage.pace import Pace

GONE = "gone"
"""A temporary table of exchange ids: those that do not count as referring to anything."""

_TABLES = ("bodies", "nodes", "elements", "origins")

_SEARCHES = {
    "bodies": """
        INSERT INTO temp.lost_bodies SELECT id FROM bodies WHERE id NOT IN (
            SELECT request_body_id FROM exchanges WHERE request_body_id IS NOT NULL AND id NOT IN temp.gone
            UNION SELECT request_decoded_body_id FROM exchanges WHERE request_decoded_body_id IS NOT NULL AND id NOT IN temp.gone
            UNION SELECT response_body_id FROM exchanges WHERE response_body_id IS NOT NULL AND id NOT IN temp.gone)""",
    "nodes": """
        INSERT INTO temp.lost_nodes SELECT id FROM nodes WHERE id NOT IN (
            WITH RECURSIVE kept (id) AS (
                SELECT leaf_id FROM bodies WHERE leaf_id IS NOT NULL AND id NOT IN temp.lost_bodies
                UNION SELECT nodes.parent_id FROM kept JOIN nodes ON nodes.id = kept.id)
            SELECT id FROM kept)""",
    "elements": """
        INSERT INTO temp.lost_elements SELECT id FROM elements WHERE id NOT IN (
            SELECT element_id FROM nodes WHERE id NOT IN temp.lost_nodes)""",
    "origins": """
        INSERT INTO temp.lost_origins SELECT id FROM origins WHERE id NOT IN (
            SELECT origin_id FROM exchanges WHERE id NOT IN temp.gone)""",
}

_CHANGED = "(id > (SELECT highest FROM temp.seen WHERE name = 'exchanges') OR id IN temp.open)"
"""Exchanges that may have come to refer to something since the search: new ones, and those that were in flight."""

_REVIVALS = {
    "bodies": f"""
        DELETE FROM temp.lost_bodies WHERE id IN (
            SELECT request_body_id FROM exchanges WHERE {_CHANGED}
            UNION SELECT request_decoded_body_id FROM exchanges WHERE {_CHANGED}
            UNION SELECT response_body_id FROM exchanges WHERE {_CHANGED})""",
    "nodes": """
        DELETE FROM temp.lost_nodes WHERE id IN (
            WITH RECURSIVE revived (id) AS (
                SELECT leaf_id FROM bodies WHERE id > (SELECT highest FROM temp.seen WHERE name = 'bodies')
                UNION SELECT parent_id FROM nodes WHERE id > (SELECT highest FROM temp.seen WHERE name = 'nodes')
                UNION SELECT nodes.parent_id FROM revived JOIN nodes ON nodes.id = revived.id WHERE revived.id IN temp.lost_nodes)
            SELECT id FROM revived)""",
    "elements": """
        DELETE FROM temp.lost_elements WHERE id IN (
            SELECT element_id FROM nodes WHERE id > (SELECT highest FROM temp.seen WHERE name = 'nodes'))""",
    "origins": f"DELETE FROM temp.lost_origins WHERE id IN (SELECT origin_id FROM exchanges WHERE {_CHANGED})",
}

_ROW_BYTES = {"bodies": 60, "nodes": 50, "elements": 90, "exchanges": 900}
"""About what a row takes beside its blobs, its indexes and derived rows included: for estimates only."""
_BLOBS = {
    "bodies": "length(content)",
    "nodes": "0",
    "elements": "length(content)",
    "exchanges": "length(request_headers) + coalesce(length(response_headers), 0) + coalesce(length(arrivals), 0)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """How many rows nothing referred to."""

    bodies: int = 0
    nodes: int = 0
    elements: int = 0
    origins: int = 0


def prepare(connection: sa.Connection) -> None:
    """Makes the temporary tables, on a connection of `database.deleting`."""
    for name in (GONE, "open", *(f"lost_{name}" for name in _TABLES)):
        connection.exec_driver_sql(f"CREATE TEMP TABLE {name} (id INTEGER PRIMARY KEY)")
    connection.exec_driver_sql("CREATE TEMP TABLE seen (name TEXT PRIMARY KEY, highest INTEGER)")


def search(connection: sa.Connection) -> Collected:
    """What nothing would refer to if the exchanges in `gone` were gone. Only reads the trace."""
    for name in _TABLES:
        _search(connection, name)
    return Collected(**{name: connection.exec_driver_sql(f"SELECT count(*) FROM temp.lost_{name}").scalar_one() for name in _TABLES})


def lost_share(connection: sa.Connection) -> float:
    """About what part of the trace `search` found lost, the exchanges in `gone` included: 0 to 1."""
    lost = sum(_weight(connection, name, f"temp.lost_{name}") for name in ("bodies", "nodes", "elements"))
    lost += _weight(connection, "exchanges", f"temp.{GONE}")
    everything = sum(_weight(connection, name, name) for name in ("bodies", "nodes", "elements", "exchanges"))
    return lost / everything if everything else 0.0


def _weight(connection: sa.Connection, name: str, of: str) -> int:
    among = "" if of == name else f" WHERE id IN {of}"
    query = f"SELECT coalesce(sum({_BLOBS[name]} + {_ROW_BYTES[name]}), 0) FROM {name}{among}"
    return int(connection.exec_driver_sql(query).scalar_one())


def _search(connection: sa.Connection, name: str) -> None:
    """Fills `lost_...`, and notes how far the trace had come."""
    connection.exec_driver_sql(f"DELETE FROM temp.lost_{name}")
    connection.exec_driver_sql("DELETE FROM temp.seen")
    connection.exec_driver_sql("DELETE FROM temp.open")
    for table in ("exchanges", "bodies", "nodes"):
        query = f"INSERT INTO temp.seen SELECT '{table}', coalesce(max(id), 0) FROM {table}"
        connection.exec_driver_sql(query)
    connection.exec_driver_sql("INSERT INTO temp.open SELECT id FROM exchanges WHERE recorder_run_id IS NOT NULL")
    connection.exec_driver_sql(_SEARCHES[name])


def collect(connection: sa.Connection, pace: Pace) -> Collected:
    """Deletes what nothing refers to. Each kind is searched for when the one that referred to it has gone."""
    found = {name: _collect(connection, name, pace) for name in _TABLES}
    _collect_signals(connection, pace)
    _collect_media(connection, pace)
    _collect_leases(connection, pace)
    return Collected(**found)


def _collect(connection: sa.Connection, name: str, pace: Pace) -> int:
    connection.commit()
    _search(connection, name)
    deleted = 0
    while connection.exec_driver_sql(f"SELECT 1 FROM temp.lost_{name} LIMIT 1").first():
        with pace.step(connection) as most:
            connection.exec_driver_sql(_REVIVALS[name])
            deleted += _delete(connection, name, most)
    return deleted


def _delete(connection: sa.Connection, name: str, most: int) -> int:
    """The latest first: a node goes before its parent."""
    some = f"SELECT id FROM temp.lost_{name} ORDER BY id DESC LIMIT {most}"
    count = connection.exec_driver_sql(f"DELETE FROM {name} WHERE id IN ({some})").rowcount
    connection.exec_driver_sql(f"DELETE FROM temp.lost_{name} WHERE id IN ({some})")
    return count


def _collect_signals(connection: sa.Connection, pace: Pace) -> None:
    """One transaction: any exchange, however old, may be read again at any time and show a signal that was lost."""
    unused = "SELECT id FROM signal_values WHERE id NOT IN (SELECT signal_id FROM signals)"
    connection.commit()
    if connection.exec_driver_sql(f"{unused} LIMIT 1").first():
        with pace.step(connection):
            connection.exec_driver_sql(f"DELETE FROM signal_values WHERE id IN ({unused})")


def _collect_media(connection: sa.Connection, pace: Pace) -> None:
    """What is known of the images and files of elements that are gone."""
    with pace.step(connection):
        connection.exec_driver_sql("DELETE FROM element_media WHERE element_id NOT IN (SELECT id FROM elements)")
        connection.exec_driver_sql("DELETE FROM media WHERE id NOT IN (SELECT media_id FROM element_media)")


def _collect_leases(connection: sa.Connection, pace: Pace) -> None:
    """Leases that were given back, or whose recorder is dead, and what the journal holds of exchanges that have ended or are gone."""
    with pace.step(connection):
        over = leases.over(connection)
        used = "SELECT recorder_run_id FROM exchanges WHERE recorder_run_id IS NOT NULL"
        for number in over:
            connection.exec_driver_sql(f"DELETE FROM recorder_runs WHERE id = ? AND id NOT IN ({used})", (number,))
        connection.exec_driver_sql(
            "DELETE FROM journal WHERE exchange_id NOT IN (SELECT id FROM exchanges WHERE recorder_run_id IS NOT NULL)"
        )
