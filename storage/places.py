"""Where calls were placed, read back: what identity goes on from when new exchanges come."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from storage import signal_rows
from storage.packing import unpack_tools
from storage.records import ExchangeId, Gap, Placement
from storage.schema import calls, exchanges, sessions, threads
from storage.trace import Trace

_parent = threads.alias("parent")
_PLACED = (
    sa.select(
        calls,
        sessions.c.key.label("session_key"),
        sessions.c.client,
        threads.c.key.label("thread_key"),
        threads.c.agent,
        threads.c.parent_exchange_id,
        threads.c.parent_call,
        _parent.c.key.label("parent_thread_key"),
    )
    .select_from(
        calls.join(exchanges, exchanges.c.id == calls.c.exchange_id)
        .join(sessions, sessions.c.id == calls.c.session_id)
        .join(threads, threads.c.id == calls.c.thread_id)
        .outerjoin(_parent, _parent.c.id == threads.c.parent_thread_id)
    )
    .order_by(exchanges.c.started_ns, exchanges.c.id)
)


def placements(trace: Trace, sessions_wanted: Sequence[int] | None = None) -> Iterator[Placement]:
    """Placements in order of start, as they were saved: of these sessions, or (None) all."""
    query = _PLACED if sessions_wanted is None else _PLACED.where(calls.c.session_id.in_(sessions_wanted))
    with trace.engine.connect() as connection:
        for row in connection.execute(query):
            yield _placement(row)


def _placement(row: sa.Row[Any]) -> Placement:
    return Placement(
        exchange_id=ExchangeId(row.exchange_id),
        session_key=row.session_key,
        thread_key=row.thread_key,
        number=row.number,
        kind=row.kind,
        client=row.client,
        agent=row.agent,
        parent_thread_key=row.parent_thread_key,
        parent_exchange_id=row.parent_exchange_id,
        parent_call=row.parent_call,
        compaction_of=row.compaction_of,
        compacted_by=row.compacted_by,
        gap=Gap(tool_ns=row.tool_ns, human_ns=row.human_ns, harness_ns=row.harness_ns, tools=unpack_tools(row.tools)),
        after=tuple(ExchangeId(int(number)) for number in row.after.split(",")) if row.after else (),
        gap_ns=row.gap_ns,
        retry_of=row.retry_of,
        source=row.source,
        confidence=row.confidence,
    )


def evidence(trace: Trace, session: int) -> list[tuple[ExchangeId, str, float, tuple[tuple[str, str], ...]]]:
    """(exchange, source, confidence, signals) of every call of a session, in order of start."""
    query = (
        sa.select(calls.c.exchange_id, calls.c.source, calls.c.confidence)
        .join(exchanges, exchanges.c.id == calls.c.exchange_id)
        .where(calls.c.session_id == session)
        .order_by(exchanges.c.started_ns, exchanges.c.id)
    )
    with trace.engine.connect() as connection:
        rows = connection.execute(query).all()
    shown = signal_rows.load(trace, [row.exchange_id for row in rows]) if rows else {}
    return [(row.exchange_id, row.source or "unknown", row.confidence or 0.0, shown.get(row.exchange_id, ())) for row in rows]
