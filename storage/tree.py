"""The prefix tree as the writer grows it: each distinct element once, each prefix one path of nodes.

Works inside the transaction of the connection it is given, under its write lock. Its memories are bounded; what they do not hold is
looked up. It does not know exchanges.
"""

import hashlib
from collections.abc import Sequence

import sqlalchemy as sa

from storage.likeness import Remembered, closest
from storage.numbering import Numbering
from storage.packing import Codec
from storage.recency import Recency
from storage.records import Element, Split
from storage.schema import elements, nodes
from storage.skeleton import canonical, pack, rebuild

_REMEMBERED_BODIES, _REMEMBERED_BYTES = 16, 64 << 20
"""Bodies to compare new ones with: the last of each of so many threads at work at once."""
_REMEMBERED_IDS = 1 << 16
_LOOKUP_ROWS = 500

_ELEMENTS_BY_HASH = sa.select(elements.c.sha256, elements.c.id).where(elements.c.sha256.in_(sa.bindparam("hashes", expanding=True)))
_NODE = sa.select(nodes.c.id).where(
    nodes.c.parent_id == sa.bindparam("parent"), nodes.c.element_id == sa.bindparam("element"), nodes.c.grp == sa.bindparam("grp")
)
_NEW_ELEMENTS, _NEW_NODES = sa.insert(elements), sa.insert(nodes)


class Tree:
    """Grows the tree; `forget` after a transaction that was rolled back."""

    def __init__(self, codec: Codec, numbering: Numbering) -> None:
        self._codec = codec
        self._numbering = numbering
        self._element_ids: Recency[bytes, int] = Recency(_REMEMBERED_IDS)
        self._node_ids: Recency[tuple[int, int, str], int] = Recency(_REMEMBERED_IDS)
        self._bodies: list[Remembered] = []

    def forget(self) -> None:
        """Drops all memories: ids in them may never have been written."""
        self._element_ids.clear()
        self._node_ids.clear()
        self._bodies.clear()

    def plant(self, connection: sa.Connection, split: Split) -> tuple[int, bytes] | None:
        """Stores a body's elements and path; its leaf and skeleton. None: it would not come back to the byte, or has no element."""
        body = split.body
        if not split.elements:
            return None
        contents = [body[each.start : each.end] if not each.cuts else canonical(body, each) for each in split.elements]
        try:
            skeleton = pack(body, split.elements)
        except ValueError:
            return None
        if rebuild(skeleton, contents) != body:
            return None
        known = closest(self._bodies, split)
        path = list(known[0].nodes[: known[1]]) if known else []
        self._grow(connection, path, split.elements, contents)
        self._remember(Remembered(split, path), known)
        return path[-1], skeleton

    def _grow(self, connection: sa.Connection, path: list[int], parts: Sequence[Element], contents: Sequence[bytes]) -> None:
        """Appends the nodes that the path lacks."""
        first = len(path)
        ids = self._ids_of(connection, contents[first:])
        rows = []
        is_new = False
        for index, element_id in enumerate(ids, first):
            parent = path[-1] if path else 0
            key = (parent, element_id, parts[index].group)
            node = None if is_new else self._known_node(connection, key)
            if node is None:
                is_new = True
                node = self._numbering.take(connection, nodes)
                rows.append({"id": node, "parent_id": parent, "element_id": element_id, "grp": key[2], "depth": index + 1})
            self._node_ids.put(key, node)
            path.append(node)
        if rows:
            connection.execute(_NEW_NODES, rows)

    def _known_node(self, connection: sa.Connection, key: tuple[int, int, str]) -> int | None:
        found = self._node_ids.get(key)
        if found is None:
            found = connection.scalar(_NODE, {"parent": key[0], "element": key[1], "grp": key[2]})
        return found

    def _ids_of(self, connection: sa.Connection, contents: Sequence[bytes]) -> list[int]:
        """The element id of each content; new ones are stored."""
        hashes = [hashlib.sha256(content).digest() for content in contents]
        ids = {each: self._element_ids.get(each) for each in hashes}
        unknown = [each for each, element_id in ids.items() if element_id is None]
        for at in range(0, len(unknown), _LOOKUP_ROWS):
            ids.update(
                (bytes(row[0]), row[1]) for row in connection.execute(_ELEMENTS_BY_HASH, {"hashes": unknown[at : at + _LOOKUP_ROWS]})
            )
        rows = []
        for digest, content in zip(hashes, contents, strict=True):
            if ids[digest] is None:
                ids[digest] = self._numbering.take(connection, elements)
                rows.append({"id": ids[digest], "sha256": digest, "size": len(content), "content": self._codec.compress(content)})
        if rows:
            connection.execute(_NEW_ELEMENTS, rows)
        found = [element_id for each in hashes if (element_id := ids[each]) is not None]
        for digest, element_id in zip(hashes, found, strict=True):
            self._element_ids.put(digest, element_id)
        return found

    def _remember(self, new: Remembered, known: tuple[Remembered, int] | None) -> None:
        """Keeps the body for comparing; one that it wholly goes on from has served."""
        if known and known[1] == len(known[0].nodes):
            self._bodies.remove(known[0])
        self._bodies.insert(0, new)
        del self._bodies[_REMEMBERED_BODIES:]
        while self._bodies and sum(len(each.split.body) for each in self._bodies) > _REMEMBERED_BYTES:
            self._bodies.pop()
