"""The listing of exchanges: one row each, bodies not loaded. Made for traces of hundreds of thousands of exchanges."""

import hashlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from storage import journal, leases
from storage.records import ExchangeId, ExchangeRow, Marks, RunId, State, Usage
from storage.schema import calls, exchanges, replayed, threads
from storage.trace import Trace

_repeated = calls.alias("repeated")
_thread = sa.func.coalesce(calls.c.thread_id, _repeated.c.thread_id)


def _query() -> "sa.Select[Any]":
    """All columns of a listing, in the order in which `_row` takes them; a replay has the place of what it repeats."""
    e, c, p, t, r = exchanges.c, calls.c, _repeated.c, threads.c, replayed.c
    return (
        sa.select(
            e.id, e.started_ns, e.ended_ns, e.headers_ns, e.sent_ns, e.transport, e.method, e.url, e.status,
            sa.func.coalesce(c.state, e.state), e.chunks, e.request_bytes, e.request_sha256, e.response_bytes, e.response_sha256,
            e.recorder_run_id, e.request_body_id,
            sa.func.coalesce(c.session_id, p.session_id), _thread, t.agent, t.parent_thread_id,
            sa.func.coalesce(c.number, p.number), sa.func.coalesce(p.kind, c.kind, "other"), c.dialect, c.model, c.abort_by, c.retry_of,
            c.first_byte_ns, c.first_content_ns, c.first_output_ns, c.first_text_ns, c.last_content_ns, c.content_reads,
            c.prompt_tokens, c.cached_tokens, c.cache_written_tokens, c.output_tokens, c.reasoning_tokens,
            c.stop, c.streamed, c.error, c.after, c.gap_ns, r.run_id, r.source_exchange_id, r.copy, r.ready_ns,
        )
        .select_from(
            exchanges.outerjoin(calls, c.exchange_id == e.id)
            .outerjoin(replayed, r.exchange_id == e.id)
            .outerjoin(_repeated, p.exchange_id == r.source_exchange_id)
            .outerjoin(threads, t.id == _thread)
        )
        .order_by(e.started_ns, e.id)
    )  # fmt: skip


_QUERY = _query()


def listing(trace: Trace, *, sessions: Sequence[int] = (), runs: Sequence[RunId] = (), everything: bool = False) -> list[ExchangeRow]:
    """Rows in order of start: of these sessions and runs, or all recorded ones, or (`everything`) replayed ones too."""
    query = _QUERY
    if sessions or runs:
        of_sessions = sa.and_(calls.c.session_id.in_(sessions), replayed.c.run_id.is_(None))
        query = query.where(sa.or_(of_sessions, replayed.c.run_id.in_(runs)))
    elif not everything:
        query = query.where(replayed.c.run_id.is_(None))
    with trace.engine.connect() as connection:
        rows = connection.execute(query).all()
        return [_row(row) if row[2] is not None else _open_row(connection, row) for row in rows]


def _row(row: Sequence[Any]) -> ExchangeRow:
    (
        number, started_ns, ended_ns, headers_ns, sent_ns, transport, method, url, status,
        state, chunks, request_bytes, request_sha256, response_bytes, response_sha256,
        _lease, _request_body, session, thread, agent, parent_thread,
        place, kind, dialect, model, abort_by, retry_of,
        first_byte_ns, first_content_ns, first_output_ns, first_text_ns, last_content_ns, content_reads,
        prompt, cached, cache_written, output, reasoning,
        stop, streamed, error, after, gap_ns, run, source, copy, ready_ns,
    ) = row  # fmt: skip
    return ExchangeRow(
        id=number, session=session, thread=thread, agent=agent, parent_thread=parent_thread, number=place, kind=kind, dialect=dialect,
        transport=transport, method=method, url=url, model=model, status=status, state=state, abort_by=abort_by, retry_of=retry_of,
        started_ns=started_ns, ended_ns=ended_ns, headers_ns=headers_ns, sent_ns=sent_ns,
        marks=Marks(
            first_byte_ns=first_byte_ns, first_content_ns=first_content_ns, first_output_ns=first_output_ns,
            first_text_ns=first_text_ns, last_content_ns=last_content_ns, content_reads=content_reads or 0,
        ),
        usage=Usage(prompt=prompt, cached=cached, cache_written=cache_written, output=output, reasoning=reasoning),
        stop=stop, streamed=None if streamed is None else bool(streamed), error=error,
        request_bytes=request_bytes, request_sha256=request_sha256.hex(),
        response_bytes=response_bytes, response_sha256=response_sha256.hex(), chunks=chunks,
        run=run, source_exchange=source, copy=copy, ready_ns=ready_ns,
        after=tuple(map(ExchangeId, map(int, after.split(",")))) if after else (), gap_ns=gap_ns,
    )  # fmt: skip


def _open_row(connection: sa.Connection, found: Sequence[Any]) -> ExchangeRow:
    """A row of an exchange in flight, or interrupted: what has come is in the journal."""
    row = list(found)
    response = journal.pieces(connection, row[0], journal.RESPONSE)
    body = b"".join(piece.data for piece in response)
    row[10], row[13], row[14] = len(response), len(body), hashlib.sha256(body).digest()
    if row[16] is None:
        upload = b"".join(piece.data for piece in journal.pieces(connection, row[0], journal.REQUEST))
        row[11], row[12] = len(upload), hashlib.sha256(upload).digest()
    if row[15] not in leases.living(connection):
        row[9] = State.INTERRUPTED.value
        row[2] = max([at_ns for at_ns in (row[3], row[4]) if at_ns is not None] + [piece.at_ns for piece in response[-1:]], default=0)
    return _row(row)
