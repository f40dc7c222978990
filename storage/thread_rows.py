"""Threads with what is known of how they were started and where their results came back; and the compactions of sessions."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import sqlalchemy as sa

from storage.schema import threads
from storage.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRow:
    """One agent of a session. Exchanges: the call that spawned it, its parent's call that carries its result."""

    id: int
    session: int
    key: str
    agent: str | None
    parent: int | None
    parent_exchange: int | None
    parent_call: str | None
    mode: str | None
    """`foreground` or `background`."""
    joined_exchange: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRow:
    """A row of the view `compaction`."""

    exchange: int
    session: int
    thread: int
    before: int
    made_by: int | None
    tokens_before: int | None
    tokens_after: int | None
    elements_before: int | None
    elements_after: int | None
    elements_kept: int | None


_THREADS = sa.select(
    threads.c.id, threads.c.session_id.label("session"), threads.c.key, threads.c.agent, threads.c.parent_thread_id.label("parent"),
    threads.c.parent_exchange_id.label("parent_exchange"), threads.c.parent_call, threads.c.mode,
    threads.c.joined_exchange_id.label("joined_exchange"),
)  # fmt: skip
_COMPACTIONS = sa.table("compaction", *(sa.column(field.name) for field in fields(CompactionRow)))


def of_threads(trace: Trace, ids: Sequence[int]) -> dict[int, ThreadRow]:
    """Threads by id; those that do not exist are left out."""
    with trace.engine.connect() as connection:
        rows = connection.execute(_THREADS.where(threads.c.id.in_(ids)))
        return {row.id: ThreadRow(**row._mapping) for row in rows}


def compactions(trace: Trace, thread_ids: Sequence[int]) -> list[CompactionRow]:
    """The compactions of these threads, in order."""
    query = sa.select(*_COMPACTIONS.c).where(_COMPACTIONS.c.thread.in_(thread_ids)).order_by(_COMPACTIONS.c.exchange)
    with trace.engine.connect() as connection:
        return [CompactionRow(**row._mapping) for row in connection.execute(query)]
