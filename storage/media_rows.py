"""Which elements hold which images and files; each distinct one is listed once, however many elements hold it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import batched

import sqlalchemy as sa

from storage import database
from storage.elements import paths
from storage.numbering import Numbering
from storage.records import ExchangeId, Medium
from storage.schema import element_media, media, nodes
from storage.trace import Trace

_ROWS = 500


def save(trace: Trace, found: Mapping[int, Sequence[Medium]]) -> None:
    """Stores what elements hold (by element id), unless it is stored already. One transaction."""
    if not found:
        return
    with trace.engine.begin() as connection:
        database.take_write_lock(connection)
        numbering = Numbering()
        known = _known(connection, element_media.c.element_id, found)
        ids: dict[bytes, int] = {}
        for element, mine in found.items():
            if element in known:
                continue
            numbers = [_id(connection, numbering, ids, medium) for medium in mine]
            rows = [{"element_id": element, "place": place, "media_id": number} for place, number in enumerate(numbers)]
            connection.execute(sa.insert(element_media), rows)


def _known(connection: sa.Connection, column: "sa.Column[int]", wanted: Iterable[int]) -> frozenset[int]:
    found: set[int] = set()
    for some in batched(wanted, _ROWS):
        found.update(connection.scalars(sa.select(column).where(column.in_(some))))
    return frozenset(found)


def _id(connection: sa.Connection, numbering: Numbering, ids: dict[bytes, int], medium: Medium) -> int:
    if medium.sha256 not in ids:
        number = connection.scalar(sa.select(media.c.id).where(media.c.sha256 == medium.sha256))
        if number is None:
            number = numbering.take(connection, media)
            row = {name: getattr(medium, name) for name in ("sha256", "kind", "mime", "size", "width", "height")}
            connection.execute(sa.insert(media), row | {"id": number})
        ids[medium.sha256] = number
    return ids[medium.sha256]


def of_exchange(trace: Trace, exchange: ExchangeId) -> list[Medium]:
    """The media in the prompt of a request, in prompt order."""
    path = next(paths(trace, (exchange,)))[1]
    found: dict[int, list[Medium]] = {}
    query = (
        sa.select(nodes.c.id, media)
        .join(element_media, element_media.c.element_id == nodes.c.element_id)
        .join(media, media.c.id == element_media.c.media_id)
        .order_by(element_media.c.place)
    )
    with trace.engine.connect() as connection:
        for some in batched(path, _ROWS):
            for row in connection.execute(query.where(nodes.c.id.in_(some))):
                medium = Medium(sha256=row.sha256, kind=row.kind, mime=row.mime, size=row.size, width=row.width, height=row.height)
                found.setdefault(row[0], []).append(medium)
    return [medium for node in path for medium in found.get(node, ())]
