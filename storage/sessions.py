"""Derived rows: calls with their places, sessions and threads. Rebuilt by `reread`; ids and the user's names outlast that."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from storage import database, derived
from storage.errors import NotFoundError
from storage.keys import Keys
from storage.numbering import Numbering
from storage.records import ExchangeId, Placement, Reading, SessionRow
from storage.schema import calls, element_media, exchanges, ideal, media, recall, sessions, signal_values, signals, threads, trails
from storage.signal_rows import Signals
from storage.trace import Trace

_DROP_CALLS = sa.delete(calls).where(calls.c.exchange_id == sa.bindparam("exchange"))
_DROP_SIGNALS = sa.delete(signals).where(signals.c.exchange_id == sa.bindparam("exchange"))
_PLACE = (
    "session_id", "thread_id", "number", "kind", "after", "gap_ns", "retry_of", "source", "confidence",
    "tool_ns", "human_ns", "harness_ns", "tools", "compaction_of", "compacted_by",
)  # fmt: skip
_SET_PLACE = (
    sa.update(calls).where(calls.c.exchange_id == sa.bindparam("exchange")).values({name: sa.bindparam(f"new_{name}") for name in _PLACE})
)


def save(
    trace: Trace,
    readings: Sequence[Reading],
    placements: Sequence[Placement],
    reader_version: int,
    recalled_by: Mapping[ExchangeId, Iterable[int]] = MappingProxyType({}),
) -> None:
    """Stores readings (each replaces what was read before of its exchange) and placements of calls already read. One transaction.

    `recalled_by`: keys by which the sessions of these exchanges are found again (`trails.sessions_with`).
    """
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        numbering = Numbering()
        named = [
            number for each in placements for number in (each.retry_of, each.parent_exchange_id, each.compaction_of, each.compacted_by)
        ]
        there = derived.there(connection, [*(reading.exchange_id for reading in readings), *named])
        readings = [reading for reading in readings if reading.exchange_id in there]
        if readings:
            which = [{"exchange": reading.exchange_id} for reading in readings]
            places = _places(connection, [reading.exchange_id for reading in readings])
            connection.execute(_DROP_SIGNALS, which)
            connection.execute(_DROP_CALLS, which)
            connection.execute(
                sa.insert(calls), [_call(reading, reader_version) | places.get(reading.exchange_id, {}) for reading in readings]
            )
            Signals(connection, numbering).save(readings)
        if placements:
            keys = Keys(connection, numbering, there)
            placed = {placement.exchange_id: keys.place(placement) for placement in placements}
            connection.execute(_SET_PLACE, [_renamed(number, values) for number, values in placed.items()])
            _save_keys(connection, {(key, placed[number]["session_id"]) for number, found in recalled_by.items() for key in found})


def _save_keys(connection: sa.Connection, pairs: set[tuple[int, int]]) -> None:
    if pairs:
        rows = [{"key": key, "session_id": session} for key, session in sorted(pairs)]
        connection.execute(sa.insert(recall).prefix_with("OR IGNORE"), rows)


def _renamed(exchange: ExchangeId, values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `_SET_PLACE`."""
    return {"exchange": exchange} | {f"new_{name}": value for name, value in values.items()}


def forget(trace: Trace) -> None:
    """Drops all derived rows. Sessions and threads keep their ids for their keys, sessions their names."""
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        for table in (ideal, trails, recall, signals, signal_values, calls, element_media, media):
            connection.execute(sa.delete(table))
        unknown = ("parent_thread_id", "parent_exchange_id", "parent_call", "mode", "joined_exchange_id")
        connection.execute(sa.update(threads).values(dict.fromkeys(unknown)))
        connection.execute(sa.update(sessions).values(forked_from_id=None))


def forget_sessions(trace: Trace, keys: Sequence[str]) -> None:
    """Drops what is derived of the exchanges of these sessions, so that they are read and placed again."""
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        mine = sa.select(sessions.c.id).where(sessions.c.key.in_(keys))
        some = sa.select(calls.c.exchange_id).where(calls.c.session_id.in_(mine))
        for table in (ideal, trails, signals):
            connection.execute(sa.delete(table).where(table.c.exchange_id.in_(some)))
        connection.execute(sa.delete(calls).where(calls.c.session_id.in_(mine)))


def annotate(trace: Trace, session: int, note: str | None) -> None:
    """Gives a session a note of the user's, or takes it away. NotFoundError."""
    _set(trace, session, note=note)


def rename(trace: Trace, session: int, name: str | None) -> None:
    """Gives a session a name of the user's, or takes it away. NotFoundError."""
    _set(trace, session, name=name)


def _set(trace: Trace, session: int, **values: str | None) -> None:
    with trace.engine.begin() as connection:
        if connection.execute(sa.update(sessions).where(sessions.c.id == session).values(values)).rowcount == 0:
            raise NotFoundError(f"there is no session s{session} in this trace", hint="list them: playhead sessions")


def key_of(trace: Trace, session: int) -> str:
    """The key of a session. NotFoundError."""
    with trace.engine.connect() as connection:
        key: str | None = connection.scalar(sa.select(sessions.c.key).where(sessions.c.id == session))
    if key is None:
        raise NotFoundError(f"there is no session s{session} in this trace", hint="list them: playhead sessions")
    return key


def listing(trace: Trace, *, ids: Sequence[int] = ()) -> list[SessionRow]:
    """Sessions that have calls, in order of their first request."""
    where = [calls.c.session_id.in_(ids)] if ids else [calls.c.session_id.is_not(None)]
    with trace.engine.connect() as connection:
        parts = connection.execute(_BY_MODEL.where(*where)).all()
        rows = {row.id: row for row in connection.execute(sa.select(sessions))}
    by_session: dict[int, list[Any]] = {}
    for part in parts:
        by_session.setdefault(part.session_id, []).append(part)
    return sorted((_session(rows[number], found) for number, found in by_session.items()), key=lambda row: (row.started_ns, row.id))


_is_turn = calls.c.kind == "turn"
_BY_MODEL = (
    sa.select(
        calls.c.session_id,
        calls.c.model,
        sa.func.count().label("calls"),
        sa.func.count(sa.case((_is_turn, 1))).label("turns"),
        sa.func.min(exchanges.c.started_ns).label("started_ns"),
        sa.func.max(exchanges.c.started_ns + sa.func.coalesce(exchanges.c.ended_ns, 0)).label("ended_ns"),
        sa.func.min(exchanges.c.id).label("first"),
        sa.func.group_concat(calls.c.thread_id.distinct()).label("threads"),
        sa.func.sum(calls.c.prompt_tokens).label("prompt"),
        sa.func.sum(calls.c.cached_tokens).label("cached"),
        sa.func.sum(calls.c.output_tokens).label("output"),
        sa.func.sum(sa.case((ideal.c.prompt_tokens.is_not(None), ideal.c.ideal_tokens))).label("ideal"),
        sa.func.sum(sa.case((ideal.c.ideal_tokens.is_not(None), ideal.c.prompt_tokens))).label("counted"),
    )
    .select_from(calls.join(exchanges, exchanges.c.id == calls.c.exchange_id).outerjoin(ideal, ideal.c.exchange_id == calls.c.exchange_id))
    .group_by(calls.c.session_id, calls.c.model)
)


def _session(row: sa.Row[Any], parts: Sequence[Any]) -> SessionRow:
    """One session from its sums by model."""
    parts = sorted(parts, key=lambda part: (part.started_ns, part.first))
    ideal_tokens, counted = _sum(part.ideal for part in parts), _sum(part.counted for part in parts)
    return SessionRow(
        id=row.id,
        key=row.key,
        name=row.name,
        client=row.client,
        note=row.note,
        forked_from=row.forked_from_id,
        started_ns=min(part.started_ns for part in parts),
        ended_ns=max(part.ended_ns for part in parts),
        threads=len({thread for part in parts for thread in (part.threads or "").split(",") if thread}),
        turns=sum(part.turns for part in parts),
        side_calls=sum(part.calls - part.turns for part in parts),
        models=tuple(part.model for part in parts if part.model is not None),
        prompt_tokens=_sum(part.prompt for part in parts),
        cached_tokens=_sum(part.cached for part in parts),
        output_tokens=_sum(part.output for part in parts),
        ideal_share=ideal_tokens / counted if ideal_tokens is not None and counted else None,
    )


def _sum(figures: Iterable[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def _call(reading: Reading, reader_version: int) -> dict[str, Any]:
    usage, marks = reading.usage, reading.marks
    return {
        "exchange_id": reading.exchange_id,
        "reader_version": reader_version,
        "state": reading.state.value,
        "abort_by": reading.abort_by,
        "dialect": reading.dialect,
        "model": reading.model,
        "kind": reading.kind,
        "streamed": None if reading.streamed is None else int(reading.streamed),
        "stop": reading.stop,
        "error": reading.error,
        "prompt_tokens": usage.prompt,
        "cached_tokens": usage.cached,
        "cache_written_tokens": usage.cache_written,
        "output_tokens": usage.output,
        "reasoning_tokens": usage.reasoning,
        "usage_raw": reading.usage_raw,
        "first_byte_ns": marks.first_byte_ns,
        "first_content_ns": marks.first_content_ns,
        "first_output_ns": marks.first_output_ns,
        "first_text_ns": marks.first_text_ns,
        "last_content_ns": marks.last_content_ns,
        "content_reads": marks.content_reads,
        "response_id": reading.response_id,
        "previous_response_id": reading.previous_response_id,
        "request_decoded_sha256": reading.request_decoded_sha256,
        "response_decoded_sha256": reading.response_decoded_sha256,
    } | dict.fromkeys(name for name in _PLACE if name != "kind")


def _places(connection: sa.Connection, ids: Sequence[int]) -> Mapping[int, dict[str, Any]]:
    """Where calls that are read again were placed: a new reading does not move them."""
    found: dict[int, dict[str, Any]] = {}
    columns = [calls.c[name] for name in _PLACE]
    for at in range(0, len(ids), 500):
        query = sa.select(calls.c.exchange_id, *columns).where(calls.c.exchange_id.in_(ids[at : at + 500]), calls.c.session_id.is_not(None))
        for number, *values in connection.execute(query):
            found[number] = dict(zip(_PLACE, values, strict=True))
    return found
