"""Reading the prefix tree: the path of a request, the elements on it, a body put together again.

Memories are bounded, so that reading a whole trace in order costs what is new in each body, not its length, and constant memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import batched
from typing import Any

import sqlalchemy as sa

from storage.errors import DamagedError
from storage.packing import Codec
from storage.recency import Recency, SizedRecency
from storage.records import ExchangeId
from storage.schema import bodies, elements, exchanges, nodes
from storage.skeleton import rebuild
from storage.trace import Trace

_REMEMBERED_NODES = 1 << 17
_REMEMBERED_BYTES = 64 << 20
_STRETCH = 64
"""Nodes fetched at a time: a body mostly adds a few to a path that is remembered."""
_ROWS = 500
_PREFETCHED_STEPS = 6
"""Nodes back from its leaf that are looked for at once for all paths of a batch; whatever lies before is fetched path by path."""

_ELEMENTS = sa.select(elements.c.id, elements.c.content).where(elements.c.id.in_(sa.bindparam("ids", expanding=True)))


_NODES = sa.select(nodes.c.id, nodes.c.parent_id, nodes.c.element_id).where(nodes.c.id.in_(sa.bindparam("ids", expanding=True)))


def _stretch() -> sa.Select[Any]:
    """A node and so many of its forebears: (id, parent, element)."""
    start = (
        sa.select(nodes.c.id, nodes.c.parent_id, nodes.c.element_id, sa.literal(1).label("step"))
        .where(nodes.c.id == sa.bindparam("leaf"))
        .cte("path", recursive=True)
    )
    path = start.union_all(
        sa.select(nodes.c.id, nodes.c.parent_id, nodes.c.element_id, start.c.step + 1)
        .join(start, nodes.c.id == start.c.parent_id)
        .where(start.c.step < _STRETCH)
    )
    return sa.select(path.c.id, path.c.parent_id, path.c.element_id).order_by(path.c.step)


_STRETCH_OF = _stretch()


class Paths:
    """Finds paths and contents on one connection, remembering what it has met."""

    def __init__(self, connection: sa.Connection, codec: Codec) -> None:
        self._connection = connection
        self._codec = codec
        self._nodes: Recency[int, tuple[int, int]] = Recency(_REMEMBERED_NODES)
        self._contents: SizedRecency[int] = SizedRecency(_REMEMBERED_BYTES)

    def path(self, leaf: int) -> tuple[list[int], list[int]]:
        """The nodes from the root to a leaf, and their elements; ValueError when a node is missing or misplaced."""
        found, parts = [], []
        node = leaf
        while node:
            known = self._nodes.get(node) or self._fetch(node)
            if known[0] >= node:  # a parent is older than its child: what goes on upwards comes to an end
                raise ValueError(f"node {node} does not come after its parent {known[0]}")
            found.append(node)
            parts.append(known[1])
            node = known[0]
        found.reverse()
        parts.reverse()
        return found, parts

    def prefetch(self, leaves: Sequence[int]) -> None:
        """Remembers the ends of many paths at once: most go on from a node that is remembered."""
        wanted = {leaf for leaf in leaves if self._nodes.get(leaf) is None}
        for _ in range(_PREFETCHED_STEPS):
            if not wanted:
                return
            rows = [row for some in batched(wanted, _ROWS) for row in self._connection.execute(_NODES, {"ids": some})]
            for number, parent, element in rows:
                self._nodes.put(number, (parent, element))
            wanted = {parent for _, parent, _ in rows if parent and self._nodes.get(parent) is None}

    def _fetch(self, node: int) -> tuple[int, int]:
        rows = [(row[0], (row[1], row[2])) for row in self._connection.execute(_STRETCH_OF, {"leaf": node})]
        if not rows:
            raise ValueError(f"node {node} is missing")
        for number, known in reversed(rows):
            self._nodes.put(number, known)
        return rows[0][1]

    def contents(self, ids: Sequence[int]) -> list[bytes]:
        """Canonical bytes of elements; ValueError when one is missing or damaged."""
        found = {number: content for number in ids if (content := self._contents.get(number)) is not None}
        missing = [number for number in dict.fromkeys(ids) if number not in found]
        for some in batched(missing, _ROWS):
            for number, blob in self._connection.execute(_ELEMENTS, {"ids": some}):
                found[number] = self._codec.decompress(blob)
                self._contents.put(number, found[number])
        try:
            return [found[number] for number in ids]
        except KeyError as missed:
            raise ValueError(f"element {missed} is missing") from None

    def body(self, leaf: int | None, blob: bytes) -> bytes:
        """A body from its row; ValueError when it cannot be rebuilt."""
        kept = self._codec.decompress(blob)
        return kept if leaf is None else rebuild(kept, self.contents(self.path(leaf)[1]))


@contextmanager
def damage_of(what: str) -> Iterator[None]:
    """What cannot be put together again from what is stored becomes a DamagedError that names it."""
    try:
        yield
    except (ValueError, TypeError, LookupError, sa.exc.NoResultFound) as error:
        raise DamagedError(f"{what} is damaged: {error}", hint="see what else is: playhead verify") from error


def paths(trace: Trace, ids: Sequence[ExchangeId]) -> Iterator[tuple[ExchangeId, tuple[int, ...]]]:
    """The node ids of each request, root to leaf in prompt order; () when its body is kept whole. In the order given.

    DamagedError when a path is broken.
    """
    with trace.engine.connect() as connection:
        finder = Paths(connection, trace.codec)
        for some in batched(ids, _ROWS):
            leaves = _leaves(connection, some)
            finder.prefetch([leaf for leaf in leaves.values() if leaf])
            for number in some:
                leaf = leaves.get(number)
                with damage_of(f"exchange e{number}"):
                    path = tuple(finder.path(leaf)[0]) if leaf else ()
                yield number, path


def _leaves(connection: sa.Connection, ids: Sequence[int]) -> dict[int, int | None]:
    body = sa.func.coalesce(exchanges.c.request_decoded_body_id, exchanges.c.request_body_id)
    query = sa.select(exchanges.c.id, bodies.c.leaf_id).join(bodies, bodies.c.id == body).where(exchanges.c.id.in_(ids))
    return {row[0]: row[1] for row in connection.execute(query)}


def node_elements(trace: Trace, node_ids: Iterable[int]) -> dict[int, tuple[str, int]]:
    """node id -> (group, element id); nodes that do not exist are left out."""
    found: dict[int, tuple[str, int]] = {}
    with trace.engine.connect() as connection:
        for some in batched(node_ids, _ROWS):
            query = sa.select(nodes.c.id, nodes.c.grp, nodes.c.element_id).where(nodes.c.id.in_(some))
            found.update((row[0], (row[1], row[2])) for row in connection.execute(query))
    return found


def element_bytes(trace: Trace, element_ids: Iterable[int]) -> dict[int, bytes]:
    """element id -> canonical bytes (decorations cut out); elements that do not exist are left out. DamagedError."""
    found: dict[int, bytes] = {}
    with trace.engine.connect() as connection:
        for some in batched(element_ids, _ROWS):
            for number, blob in connection.execute(_ELEMENTS, {"ids": some}):
                with damage_of(f"element {number}"):
                    found[number] = trace.codec.decompress(blob)
    return found
