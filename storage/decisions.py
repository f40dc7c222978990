"""What the user decides of sessions: kept apart from what is derived, so that it outlasts `reread` and can be taken back."""

import time
from dataclasses import dataclass

import sqlalchemy as sa

from storage import database
from storage.errors import NotFoundError
from storage.numbering import Numbering
from storage.records import ExchangeId
from storage.schema import decisions
from storage.trace import Trace

MERGE, SPLIT = "merge", "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`session` merged into `into`; or split: what started with `exchange` or after it is in `into`. Keys of sessions."""

    id: int
    made_ns: int
    kind: str
    session: str
    into: str
    exchange: ExchangeId | None = None


def load(trace: Trace) -> tuple[Decision, ...]:
    """All decisions, in the order in which they were made."""
    with trace.engine.connect() as connection:
        rows = connection.execute(sa.select(decisions).order_by(decisions.c.id)).all()
    return tuple(
        Decision(id=row.id, made_ns=row.made_ns, kind=row.kind, session=row.session_key, into=row.into_key, exchange=row.exchange_id)
        for row in rows
    )


def add(trace: Trace, kind: str, session: str, into: str, exchange: ExchangeId | None = None) -> int:
    """Makes a decision; its id."""
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        number = Numbering().take(connection, decisions)
        row = {"id": number, "made_ns": time.time_ns(), "kind": kind, "session_key": session, "into_key": into, "exchange_id": exchange}
        connection.execute(sa.insert(decisions), row)
    return number


def undo(trace: Trace) -> Decision:
    """Takes the latest decision back. NotFoundError when there is none."""
    made = load(trace)
    if not made:
        raise NotFoundError("nothing was decided about sessions of this trace", hint="see what can be: playhead session --help")
    with trace.engine.begin() as connection:
        connection.execute(sa.delete(decisions).where(decisions.c.id == made[-1].id))
    return made[-1]
