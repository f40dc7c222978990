"""Bodies as the writer stores them: each distinct one once, as a path of the prefix tree where it can be taken apart, else whole.

Works inside the transaction of the connection it is given. It does not know dialects: the splitter does.
"""

import hashlib
import logging
from typing import NamedTuple

import sqlalchemy as sa

from storage.numbering import Numbering
from storage.packing import Codec
from storage.records import Request, Split, Splitter
from storage.schema import bodies
from storage.tree import Tree

EMPTY_SHA256 = hashlib.sha256(b"").digest()

_BY_HASH = sa.select(bodies.c.id).where(bodies.c.sha256 == sa.bindparam("digest"))
_NEW = sa.insert(bodies)

_log = logging.getLogger(__name__)


class Kept(NamedTuple):
    """A stored body."""

    id: int
    sha256: bytes


class Bodies:
    """Stores bodies; `forget` after a transaction that was rolled back."""

    def __init__(self, codec: Codec, numbering: Numbering, splitter: Splitter) -> None:
        self._codec = codec
        self._numbering = numbering
        self._splitter = splitter
        self._tree = Tree(codec, numbering)

    def forget(self) -> None:
        """Drops what is remembered of earlier bodies."""
        self._tree.forget()

    def keep_whole(self, connection: sa.Connection, content: bytes) -> Kept:
        """Stores a body as it is."""
        return self._keep(connection, content, None)

    def keep_request(self, connection: sa.Connection, request: Request) -> tuple[Kept, int | None]:
        """Stores a request's body as on the wire and, where that is content-encoded, its decoded text: the id of that."""
        split = self._split(request)
        if split is None or split.body == request.body:
            return self._keep(connection, request.body, split), None
        return self._keep(connection, request.body, None), self._keep(connection, split.body, split).id

    def _split(self, request: Request) -> Split | None:
        try:
            return self._splitter(request)
        except Exception:  # a body that a reader stumbles over is kept whole, never lost
            _log.exception("a request body could not be taken apart; it is kept whole")
            return None

    def _keep(self, connection: sa.Connection, content: bytes, split: Split | None) -> Kept:
        digest = hashlib.sha256(content).digest()
        found = connection.scalar(_BY_HASH, {"digest": digest})
        if found is not None:
            return Kept(found, digest)
        planted = self._tree.plant(connection, split) if split else None
        leaf, kept = planted or (None, content)
        number = self._numbering.take(connection, bodies)
        row = {"id": number, "sha256": digest, "size": len(content), "leaf_id": leaf, "content": self._codec.compress(kept)}
        connection.execute(_NEW, row)
        return Kept(number, digest)
