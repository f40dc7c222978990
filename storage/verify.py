"""Proves a trace: every element, path and body hashed again, arrivals against bodies, references, the file itself.

Memory does not grow with the trace. Problems are plain lines; nothing is mended.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from storage import journal, schema
from storage.elements import Paths
from storage.packing import Codec, unpack_chunks, unpack_headers
from storage.schema import bodies, elements, exchanges, nodes
from storage.trace import Trace

_MOST_PROBLEMS = 1000
_ROWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was looked at, and every problem found in words (at most a thousand; `problem_count` counts all)."""

    elements: int
    nodes: int
    bodies: int
    body_bytes: int
    exchanges: int
    problems: tuple[str, ...]
    problem_count: int

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problem_count


def verify(trace: Trace) -> Verification:
    """Checks everything in a trace."""
    with trace.engine.connect() as connection:
        check = _Check(connection, trace.codec)
        for part in (check.tables, check.file, check.references, check.elements, check.nodes, check.bodies, check.exchanges):
            check.part(part)
    return Verification(
        elements=check.counts["elements"],
        nodes=check.counts["nodes"],
        bodies=check.counts["bodies"],
        body_bytes=check.counts["body_bytes"],
        exchanges=check.counts["exchanges"],
        problems=tuple(check.problems),
        problem_count=check.problem_count,
    )


class _Check:
    def __init__(self, connection: sa.Connection, codec: Codec) -> None:
        self._connection = connection
        self._codec = codec
        self._paths = Paths(connection, codec)
        self.counts = dict.fromkeys(("elements", "nodes", "bodies", "body_bytes", "exchanges"), 0)
        self.problems: list[str] = []
        self.problem_count = 0

    def part(self, check: Callable[[], None]) -> None:
        """One part of the work: where the database itself cannot read on, that is a problem, and the other parts are still looked at."""
        try:
            check()
        except sa.exc.DBAPIError as error:
            self._say(f"{check.__name__}: {error.orig}")

    def tables(self) -> None:
        """All that a trace has, derived ones too."""
        found = set(sa.inspect(self._connection).get_table_names())
        for name in schema.metadata.tables:
            if name not in found:
                self._say(f"table {name} is missing")

    def file(self) -> None:
        """The database by its own checks."""
        if self._connection.dialect.name != "sqlite":
            return
        for row in self._connection.exec_driver_sql("PRAGMA integrity_check"):
            if row[0] != "ok":
                self._say(f"database: {row[0]}")

    def references(self) -> None:
        """Each reference to another row."""
        if self._connection.dialect.name != "sqlite":
            return
        for table, number, parent, _ in self._connection.exec_driver_sql("PRAGMA foreign_key_check"):
            self._say(f"{table} {number}: refers to a row of {parent} that is missing")

    def elements(self) -> None:
        """Each element against its hash and size."""
        for row in self._rows(sa.select(elements), elements.c.id):
            self.counts["elements"] += 1
            self._attempt(f"element {row.id}", self._element, row)

    def nodes(self) -> None:
        """Each node against its parent: it exists, came earlier and is one step nearer to the root."""
        parent = nodes.alias("parent")
        query = sa.select(nodes.c.id, nodes.c.parent_id, nodes.c.depth, parent.c.depth).select_from(
            nodes.outerjoin(parent, parent.c.id == nodes.c.parent_id)
        )
        for number, above, depth, depth_above in self._rows(query, nodes.c.id):
            self.counts["nodes"] += 1
            before = 0 if above == 0 else depth_above
            if before is None:
                self._say(f"node {number}: its parent {above} is missing")
            elif above >= number or depth != before + 1:
                self._say(f"node {number}: its depth {depth} does not follow its parent's ({before})")

    def bodies(self) -> None:
        """Each body put together again, against its hash and size."""
        for row in self._rows(sa.select(bodies), bodies.c.id):
            self.counts["bodies"] += 1
            self.counts["body_bytes"] += row.size
            self._attempt(f"body {row.id}", self._body, row)

    def exchanges(self) -> None:
        """Each exchange against its bodies, arrivals and headers."""
        request, response = bodies.alias(), bodies.alias()
        query = sa.select(exchanges, request.c.size, request.c.sha256, response.c.size, response.c.sha256).select_from(
            exchanges.outerjoin(request, request.c.id == exchanges.c.request_body_id).outerjoin(
                response, response.c.id == exchanges.c.response_body_id
            )
        )
        for row in self._rows(query, exchanges.c.id):
            self.counts["exchanges"] += 1
            self._attempt(f"exchange e{row.id}", self._exchange, row)

    def _element(self, row: Any) -> None:
        self._hash(self._codec.decompress(row.content), row)

    def _body(self, row: Any) -> None:
        self._hash(self._paths.body(row.leaf_id, row.content), row)

    def _exchange(self, row: Any) -> None:
        request_size, request_sha256, response_size, response_sha256 = row[-4:]
        unpack_headers(self._codec.decompress(row.request_headers))
        if row.response_headers is not None:
            unpack_headers(self._codec.decompress(row.response_headers))
        if row.request_body_id is not None and (request_size, request_sha256) != (row.request_bytes, row.request_sha256):
            raise ValueError("its request is not the body it refers to")
        if row.ended_ns is None:
            for side in (journal.REQUEST, journal.RESPONSE):
                journal.pieces(self._connection, row.id, side)
        elif row.request_body_id is None:
            raise ValueError("it has ended and its request is missing")
        if row.response_body_id is not None:
            self._arrivals(row, response_size, response_sha256)

    def _arrivals(self, row: Any, size: int, sha256: bytes) -> None:
        if (size, sha256) != (row.response_bytes, row.response_sha256):
            raise ValueError("its response is not the body it refers to")
        chunks = unpack_chunks(self._codec.decompress(row.arrivals))
        if len(chunks) != row.chunks or sum(length for _, length in chunks) != size:
            raise ValueError(f"its arrivals ({len(chunks)}) do not make up its response of {size} bytes in {row.chunks}")

    def _hash(self, content: bytes, row: Any) -> None:
        if len(content) != row.size:
            raise ValueError(f"{len(content)} bytes instead of {row.size}")
        if hashlib.sha256(content).digest() != bytes(row.sha256):
            raise ValueError("its sha256 is not that of its content")

    def _rows(self, query: "sa.Select[Any]", key: "sa.ColumnElement[int]") -> Iterator[Any]:
        """All rows in order of their id, a few at a time in memory."""
        last = -1
        while rows := self._connection.execute(query.where(key > last).order_by(key).limit(_ROWS)).all():
            yield from rows
            if rows[-1][0] <= last:  # a damaged page: it would go round for ever
                self._say(f"{key}: rows are out of order after {last}")
                return
            last = rows[-1][0]

    def _attempt(self, what: str, check: Callable[[Any], None], row: Any) -> None:
        try:
            check(row)
        except (ValueError, TypeError, LookupError) as problem:
            self._say(f"{what}: {problem}")
        except sa.exc.DBAPIError as problem:
            self._say(f"{what}: {problem.orig}")

    def _say(self, problem: str) -> None:
        self.problem_count += 1
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
