"""The names that users gave to sessions, carried from one trace to another after what was brought has been read there."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from storage import database
from storage.schema import calls, sessions
from storage.trace import Trace


@dataclass(frozen=True, slots=True)
class Carried:
    """`given`: how many sessions got a name. `kept`: (the name here, the one it has there) where they differ."""

    given: int
    kept: tuple[tuple[str, str], ...]


def carry(into: Trace, source: Trace, ids: Sequence[int]) -> Carried:
    """Gives sessions the names they have in `source`, unless they have one. `ids`: by exchange there the exchange here, 0: none."""
    named = sa.select(sessions.c.id, sessions.c.name, calls.c.exchange_id).join(calls, calls.c.session_id == sessions.c.id)
    with source.engine.connect() as connection:
        found = connection.execute(named.where(sessions.c.name.is_not(None)).order_by(calls.c.exchange_id)).all()
    firsts = {row.id: row for row in reversed(found) if row.exchange_id < len(ids) and ids[row.exchange_id]}
    given, kept = 0, dict[str, str]()
    with into.engine.begin() as connection:
        database.take_write_lock(connection)
        for row in firsts.values():
            of = sa.select(sessions.c.id, sessions.c.name).join(calls, calls.c.session_id == sessions.c.id)
            here = connection.execute(of.where(calls.c.exchange_id == ids[row.exchange_id])).first()
            if here is not None and here.name is None:
                connection.execute(sa.update(sessions).where(sessions.c.id == here.id).values(name=row.name))
                given += 1
            elif here is not None and here.name != row.name:
                kept[here.name] = row.name
    return Carried(given, tuple(kept.items()))
