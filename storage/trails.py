"""What the reader remembers of each call it has placed, as blobs whose content only it knows; and which exchanges are replays."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import batched

import sqlalchemy as sa

from storage import database, derived
from storage.elements import damage_of
from storage.records import ExchangeId
from storage.schema import calls, exchanges, recall, replayed, trails
from storage.trace import Trace

_ROWS = 500
_RECENT = 2000
_WITH_KEY = sa.select(recall.c.session_id).where(recall.c.key.in_(sa.bindparam("keys", expanding=True))).distinct()


def save(trace: Trace, contents: Mapping[ExchangeId, bytes]) -> None:
    """Stores blobs, each in place of what was stored for its exchange. One transaction."""
    if not contents:
        return
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        for some in batched(contents.items(), _ROWS):
            connection.execute(sa.delete(trails).where(trails.c.exchange_id.in_([number for number, _ in some])))
            there = derived.there(connection, [number for number, _ in some])
            rows = [{"exchange_id": number, "content": trace.codec.compress(content)} for number, content in some if number in there]
            if rows:
                connection.execute(sa.insert(trails), rows)


def load(trace: Trace, reader_version: int, sessions: Sequence[int] | None = None) -> Iterator[tuple[ExchangeId, bytes]]:
    """The blobs of calls that this version of the reader has read and placed (None: of all sessions), in order of start."""
    query = (
        sa.select(trails.c.exchange_id, trails.c.content)
        .join(calls, calls.c.exchange_id == trails.c.exchange_id)
        .join(exchanges, exchanges.c.id == trails.c.exchange_id)
        .where(calls.c.reader_version == reader_version)
        .order_by(exchanges.c.started_ns, exchanges.c.id)
    )
    with trace.engine.connect() as connection:
        for number, content in connection.execute(query if sessions is None else query.where(calls.c.session_id.in_(sessions))):
            with damage_of(f"what is remembered of exchange e{number}"):
                known = trace.codec.decompress(content)
            yield ExchangeId(number), known


def are_kept(trace: Trace) -> bool:
    """Whether anything is remembered."""
    with trace.engine.connect() as connection:
        return connection.execute(sa.select(trails.c.exchange_id).limit(1)).first() is not None


def recent_sessions(trace: Trace, before_ns: int) -> frozenset[int]:
    """The sessions of the calls that started last before then."""
    last = sa.select(exchanges.c.id).where(exchanges.c.started_ns <= before_ns).order_by(exchanges.c.started_ns.desc()).limit(_RECENT)
    query = sa.select(calls.c.session_id).where(calls.c.exchange_id.in_(last), calls.c.session_id.is_not(None)).distinct()
    with trace.engine.connect() as connection:
        return frozenset(connection.scalars(query))


def sessions_with(trace: Trace, keys: Iterable[int]) -> frozenset[int]:
    """Sessions of which a call has one of these keys."""
    found: set[int] = set()
    with trace.engine.connect() as connection:
        for some in batched(keys, _ROWS):
            found.update(connection.scalars(_WITH_KEY, {"keys": some}))
    return frozenset(found)


def replays(trace: Trace, ids: Sequence[ExchangeId]) -> frozenset[ExchangeId]:
    """Which of these exchanges a replay made."""
    found: set[ExchangeId] = set()
    with trace.engine.connect() as connection:
        for some in batched(ids, _ROWS):
            found.update(connection.scalars(sa.select(replayed.c.exchange_id).where(replayed.c.exchange_id.in_(some))))
    return frozenset(found)
