"""The journal: what has come of exchanges in flight, so that a killed recorder loses no more than its last batch."""

from collections.abc import Sequence

import sqlalchemy as sa

from storage.numbering import Numbering
from storage.packing import arrivals, pack_chunks, unpack_chunks
from storage.records import Arrival
from storage.schema import journal

REQUEST, RESPONSE = "request", "response"

_NEW = sa.insert(journal)
_OF = (
    sa.select(journal.c.chunks, journal.c.content)
    .where(journal.c.exchange_id == sa.bindparam("exchange"), journal.c.side == sa.bindparam("side"))
    .order_by(journal.c.id)
)
_DROP_SIDE = sa.delete(journal).where(journal.c.exchange_id == sa.bindparam("exchange"), journal.c.side == sa.bindparam("side"))
_DROP = sa.delete(journal).where(journal.c.exchange_id == sa.bindparam("exchange"))


def add(connection: sa.Connection, numbering: Numbering, pieces: Sequence[Arrival], *, exchange: int, side: str) -> None:
    """Notes pieces of one side of an exchange in flight."""
    chunks = pack_chunks([(piece.at_ns, len(piece.data)) for piece in pieces])
    row = {"id": numbering.take(connection, journal), "exchange_id": exchange, "side": side, "chunks": chunks}
    connection.execute(_NEW, row | {"content": b"".join(piece.data for piece in pieces)})


def pieces(connection: sa.Connection, exchange: int, side: str) -> tuple[Arrival, ...]:
    """All pieces noted of one side, in order."""
    found: list[Arrival] = []
    for chunks, content in connection.execute(_OF, {"exchange": exchange, "side": side}):
        found.extend(arrivals(unpack_chunks(chunks), content))
    return tuple(found)


def drop(connection: sa.Connection, exchange: int, side: str | None = None) -> None:
    """Removes what is in its final form now."""
    if side is None:
        connection.execute(_DROP, {"exchange": exchange})
    else:
        connection.execute(_DROP_SIDE, {"exchange": exchange, "side": side})
