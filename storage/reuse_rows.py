"""The reuse ledger's figures of each exchange, kept so that listings need not count tokens again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import batched

import sqlalchemy as sa

from storage import database, derived
from storage.records import ExchangeId, Transport
from storage.schema import calls, exchanges, ideal, replayed
from storage.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealRow:
    """Tokens of one call as the ledger counts them; `ledger_version` says by which rules, so that older rows can be counted again."""

    exchange_id: ExchangeId
    ledger_version: int
    prompt_tokens: int | None
    ideal_tokens: int | None
    broken_tokens: int | None = None


_COLUMNS = [ideal.c[field.name] for field in fields(IdealRow)]


def save(trace: Trace, rows: Sequence[IdealRow]) -> None:
    """Stores rows, each in place of what was stored for its exchange. One transaction."""
    if not rows:
        return
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        for some in batched(rows, 500):
            connection.execute(sa.delete(ideal).where(ideal.c.exchange_id.in_([row.exchange_id for row in some])))
            there = derived.there(connection, [row.exchange_id for row in some])
            if there:
                connection.execute(sa.insert(ideal), [asdict(row) for row in some if row.exchange_id in there])


def is_complete(trace: Trace, ledger_version: int) -> bool:
    """Whether every recorded model call that was answered (token counts apart) has a row of this version."""
    is_asked = sa.or_(exchanges.c.method == "POST", exchanges.c.transport == Transport.WS.value)
    answered = sa.and_(is_asked, exchanges.c.status.between(200, 299))
    asked = sa.and_(calls.c.dialect.is_not(None), calls.c.kind != "count_tokens")
    counted = sa.and_(ideal.c.exchange_id == calls.c.exchange_id, ideal.c.ledger_version == ledger_version)
    missing = (
        sa.select(calls.c.exchange_id)
        .join(exchanges, exchanges.c.id == calls.c.exchange_id)
        .outerjoin(ideal, counted)
        .outerjoin(replayed, replayed.c.exchange_id == calls.c.exchange_id)
        .where(answered, asked, ideal.c.exchange_id.is_(None), replayed.c.run_id.is_(None))
        .limit(1)
    )
    with trace.engine.connect() as connection:
        return connection.execute(missing).first() is None


def load(trace: Trace, ids: Sequence[ExchangeId] = ()) -> dict[ExchangeId, IdealRow]:
    """Rows by exchange, of these or (when none is given) of all; exchanges not yet counted are left out."""
    found: dict[ExchangeId, IdealRow] = {}
    with trace.engine.connect() as connection:
        for some in batched(ids, 500) if ids else [()]:
            query = sa.select(*_COLUMNS).where(ideal.c.exchange_id.in_(some)) if some else sa.select(*_COLUMNS)
            for row in connection.execute(query):
                found[row.exchange_id] = IdealRow(**row._mapping)
    return found
