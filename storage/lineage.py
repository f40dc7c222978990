"""Which recorded exchange another one names as the answer it goes on from. Asked of the derived rows; bodies are not touched."""

from collections import defaultdict

import sqlalchemy as sa

from storage.records import ExchangeId
from storage.schema import calls, exchanges, replayed
from storage.trace import Trace

_NAMED = calls.c.previous_response_id.is_not(None)
_NAMING = (
    sa.select(calls.c.exchange_id, calls.c.previous_response_id, exchanges.c.started_ns)
    .join(exchanges, exchanges.c.id == calls.c.exchange_id)
    .where(_NAMED)
)
_ANSWERS = (
    sa.select(calls.c.response_id, calls.c.exchange_id, exchanges.c.started_ns)
    .join(exchanges, exchanges.c.id == calls.c.exchange_id)
    .where(
        calls.c.response_id.in_(sa.select(calls.c.previous_response_id).where(_NAMED)),
        calls.c.exchange_id.not_in(sa.select(replayed.c.exchange_id)),
    )
    .order_by(exchanges.c.started_ns.desc(), exchanges.c.id.desc())
)


def links(trace: Trace) -> dict[ExchangeId, ExchangeId | None]:
    """Of every exchange that names an answer: the recorded one that gave it; None where the trace does not hold it.

    A server that gives an id twice means the later answer.
    """
    with trace.engine.connect() as connection:
        naming = connection.execute(_NAMING).all()
        given: dict[str, list[tuple[int, ExchangeId]]] = defaultdict(list)
        for row in connection.execute(_ANSWERS) if naming else ():
            given[row.response_id].append((row.started_ns, ExchangeId(row.exchange_id)))
    return {
        ExchangeId(row.exchange_id): next((each for began, each in given[row.previous_response_id] if began < row.started_ns), None)
        for row in naming
    }
