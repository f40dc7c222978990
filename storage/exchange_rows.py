"""The listing of exchanges: one row each, bodies not loaded. Made for traces of hundreds of thousands of exchanges."""

import dataclasses
import gc
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from storage import journal, leases
from storage.errors import NotFoundError
from storage.records import ExchangeId, ExchangeRow, Marks, RunId, State, Usage
from storage.schema import calls, exchanges, replayed, threads
from storage.trace import Trace

_repeated = calls.alias("repeated")


def _query(*, with_replays: bool) -> sa.Select[Any]:
    """The columns of a listing in the order of ExchangeRow's fields, marks and usage in their places.

    A replayed exchange has the place of what it repeats.
    """
    e, c, p, t, r = exchanges.c, calls.c, _repeated.c, threads.c, replayed.c
    session, thread, number, kind = (
        (sa.func.coalesce(p[name], c[name]) for name in ("session_id", "thread_id", "number", "kind"))
        if with_replays
        else (c.session_id, c.thread_id, c.number, c.kind)
    )
    found = exchanges.outerjoin(calls, c.exchange_id == e.id).outerjoin(replayed, r.exchange_id == e.id)
    if with_replays:
        found = found.outerjoin(_repeated, p.exchange_id == r.source_exchange_id)
    return (
        sa.select(
            e.id, session, thread, t.agent, t.parent_thread_id, number, sa.func.coalesce(kind, "other"), c.dialect,
            e.transport, e.method, e.url, c.model, e.status, sa.func.coalesce(c.state, e.state), c.abort_by, c.retry_of,
            e.started_ns, e.ended_ns, e.headers_ns, e.sent_ns,
            c.first_byte_ns, c.first_content_ns, c.first_output_ns, c.first_text_ns, c.last_content_ns,
            sa.func.coalesce(c.content_reads, 0),
            c.prompt_tokens, c.cached_tokens, c.cache_written_tokens, c.output_tokens, c.reasoning_tokens,
            c.stop, c.streamed, sa.func.coalesce(c.error, sa.case((e.status.is_(None), e.failure_message))), e.request_bytes,
            e.request_sha256, e.response_bytes, e.response_sha256, e.chunks,
            r.run_id, r.source_exchange_id, r.copy, r.ready_ns, c.after, c.gap_ns, c.tool_ns, c.human_ns, c.harness_ns,
        )
        .select_from(found.outerjoin(threads, t.id == thread))
        .order_by(e.started_ns, e.id)
    )  # fmt: skip


_RECORDED = _query(with_replays=False).where(replayed.c.run_id.is_(None))
_ALL = _query(with_replays=True)
_STATE, _ENDED, _HEADERS, _SENT, _REQUEST, _RESPONSE, _CHUNKS = 13, 17, 18, 19, 34, 36, 38
"""Where in a row stands what an exchange in flight has in the journal; sizes are followed by their sha256."""
_STREAMED = {None: None, 0: False, 1: True}


def listing(trace: Trace, *, sessions: Sequence[int] = (), runs: Sequence[RunId] = (), everything: bool = False) -> list[ExchangeRow]:
    """Rows in order of start: of these sessions and runs, or all recorded ones, or (`everything`) replayed ones too."""
    query = _ALL if runs or everything else _RECORDED
    if sessions or runs:
        of_sessions = sa.and_(calls.c.session_id.in_(sessions), replayed.c.run_id.is_(None))
        query = query.where(sa.or_(of_sessions, replayed.c.run_id.in_(runs)))
    return _rows(trace, query)


def of_thread(trace: Trace, thread: int) -> list[ExchangeRow]:
    """The recorded exchanges of one thread, in order of start."""
    return _rows(trace, _RECORDED.where(calls.c.thread_id == thread))


def of_exchange(trace: Trace, exchange_id: ExchangeId) -> ExchangeRow:
    """The row of one exchange, recorded or replayed; NotFoundError."""
    found = _rows(trace, _ALL.where(exchanges.c.id == exchange_id))
    if not found:
        raise NotFoundError(f"there is no exchange e{exchange_id} in this trace", hint="list them: playhead exchanges")
    return found[0]


def decoded_sha256(trace: Trace, exchange_id: ExchangeId) -> tuple[bytes | None, bytes | None]:
    """Of the request's and the response's body without content-encoding; None where there was none, it does not decode, or is unread."""
    query = sa.select(calls.c.request_decoded_sha256, calls.c.response_decoded_sha256).where(calls.c.exchange_id == exchange_id)
    with trace.engine.connect() as connection:
        found = connection.execute(query).first()
    return (found[0], found[1]) if found else (None, None)


def _rows(trace: Trace, query: sa.Select[Any]) -> list[ExchangeRow]:
    with trace.engine.connect() as connection, _no_collections():
        return [_row(row) if row[_ENDED] is not None else _open_row(connection, row) for row in _fetch(connection, query)]


def _fetch(connection: sa.Connection, query: sa.Select[Any]) -> Any:
    """Rows as the driver gives them, which the columns here need no more than: SQLAlchemy's rows would cost as much as fetching."""
    return connection.execute(query).cursor


@contextmanager
def _no_collections() -> Iterator[None]:
    """Hundreds of thousands of new values, none in a cycle, would each time be searched for garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _mutable(frozen: type) -> Any:
    """A class of the same slots whose instances may be filled: a frozen dataclass of 40 fields takes 6 us to make itself.

    An instance becomes the frozen class by assignment to `__class__`, which Python allows between classes of one layout.
    """
    return dataclasses.make_dataclass(f"_Mutable{frozen.__name__}", [field.name for field in dataclasses.fields(frozen)], slots=True)


_MutableMarks, _MutableUsage, _MutableRow = _mutable(Marks), _mutable(Usage), _mutable(ExchangeRow)


def _row(row: Sequence[Any]) -> ExchangeRow:
    marks, usage = _MutableMarks(*row[20:26]), _MutableUsage(*row[26:31])
    marks.__class__, usage.__class__ = Marks, Usage
    stop, streamed, error, request_bytes, request_sha256, response_bytes, response_sha256 = row[31:38]
    after = _after(row[43]) if row[43] else ()
    found = _MutableRow(
        *row[:20], marks, usage, stop, _STREAMED[streamed], error,
        request_bytes, request_sha256.hex(), response_bytes, response_sha256.hex(), *row[38:43], after, *row[44:48],
    )  # fmt: skip
    found.__class__ = ExchangeRow
    return found  # type: ignore[no-any-return]


def _after(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if "," in text else (int(text),)


def _open_row(connection: sa.Connection, found: Sequence[Any]) -> ExchangeRow:
    """A row of an exchange in flight, or interrupted: what has come is in the journal."""
    row = list(found)
    which = sa.select(exchanges.c.recorder_run_id, exchanges.c.request_body_id).where(exchanges.c.id == row[0])
    lease, request_body = connection.execute(which).one()
    response = journal.pieces(connection, row[0], journal.RESPONSE)
    row[_CHUNKS] = len(response)
    row[_RESPONSE : _RESPONSE + 2] = _measured(b"".join(piece.data for piece in response))
    if request_body is None:
        upload = journal.pieces(connection, row[0], journal.REQUEST)
        row[_REQUEST : _REQUEST + 2] = _measured(b"".join(piece.data for piece in upload))
    if lease not in leases.living(connection):
        row[_STATE] = State.INTERRUPTED.value
        row[_ENDED] = max([row[_HEADERS] or 0, row[_SENT] or 0, *(piece.at_ns for piece in response[-1:])])
    return _row(row)


def _measured(body: bytes) -> tuple[int, bytes]:
    return len(body), hashlib.sha256(body).digest()
