"""Exchanges read back from a trace, whole or as rows of a listing. Those in flight show what the journal has.

An exchange whose recorder was killed reads as interrupted with what had come, whether or not its row has been put in final form.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from typing import Any

import sqlalchemy as sa

from storage import journal, leases
from storage.elements import Paths, damage_of
from storage.errors import NotFoundError
from storage.exchange_rows import listing
from storage.packing import Codec, arrivals, unpack_chunks, unpack_headers
from storage.recency import Recency
from storage.records import Arrival, Exchange, ExchangeId, Failure, FailureKind, Headers, Origin, Request, Response, Transport
from storage.schema import bodies, calls, exchanges, origins
from storage.skeleton import frame
from storage.trace import Trace

__all__ = ["Framed", "chunks", "listing", "load", "load_framed", "load_many", "request_body", "response_body", "unread"]

type _Row = sa.Row[Any]
type _BodyRow = tuple[int | None, bytes, bytes]
"""Leaf, content, sha256."""
type _Read[Found] = Callable[[_Reader, _Row], Found]

_BATCH = 64
_BODY = sa.select(bodies.c.leaf_id, bodies.c.content, bodies.c.sha256).where(bodies.c.id == sa.bindparam("body"))
_SMALL_BODIES = sa.select(bodies.c.id, bodies.c.leaf_id, bodies.c.content, bodies.c.sha256).where(
    bodies.c.id.in_(sa.bindparam("ids", expanding=True)), sa.func.length(bodies.c.content) <= 1 << 18
)
_REMEMBERED_HEADERS = 512
_ROWS = (
    sa.select(exchanges, origins.c.listener, origins.c.connection, origins.c.client_pid, origins.c.client_command, origins.c.label)
    .join(origins, origins.c.id == exchanges.c.origin_id)
    .where(exchanges.c.id.in_(sa.bindparam("ids", expanding=True)))
)


def load(trace: Trace, exchange_id: ExchangeId) -> Exchange:
    """One exchange with its bodies; NotFoundError, DamagedError."""
    return next(load_many(trace, (exchange_id,)))


def load_many(trace: Trace, ids: Sequence[ExchangeId]) -> Iterator[Exchange]:
    """Exchanges with their bodies in the order given, a few at a time in memory.

    NotFoundError, DamagedError at the first that is not there, not whole.
    """
    with trace.engine.connect() as connection:
        yield from read_many(connection, trace.codec, ids)


def read_many(connection: sa.Connection, codec: Codec, ids: Sequence[ExchangeId]) -> Iterator[Exchange]:
    """As `load_many`, on a connection and so inside its transaction."""
    reader = _Reader(connection, codec)
    for some in batched(ids, _BATCH):
        rows = {row.id: row for row in connection.execute(_ROWS, {"ids": some})}
        for number in some:
            if number not in rows:
                raise _not_found(number)
            with damage_of(f"exchange e{number}"):
                found = reader.exchange(rows[number])
            yield found


@dataclass(frozen=True, slots=True)
class Framed:
    """An exchange for a reader that knows the elements of its request: in the body they read `null`, its content-encoding is removed.

    `decoded_sha256`: of the whole text, where there was such an encoding.
    """

    exchange: Exchange
    decoded_sha256: bytes | None


def load_framed(trace: Trace, ids: Sequence[ExchangeId]) -> Iterator[Framed]:
    """As `load_many`; what the elements of requests cost is not paid. These are not checked against their sha256: `verify` does that."""
    with trace.engine.connect() as connection:
        reader = _FramedReader(connection, trace.codec)
        for some in batched(ids, _BATCH):
            rows = {row.id: row for row in connection.execute(_ROWS, {"ids": some})}
            reader.fetch(rows.values())
            for number in some:
                if number not in rows:
                    raise _not_found(number)
                with damage_of(f"exchange e{number}"):
                    found = Framed(reader.exchange(rows[number]), reader.decoded_sha256(rows[number]))
                yield found


def request_body(trace: Trace, exchange_id: ExchangeId) -> bytes:
    """The request's body as on the wire; NotFoundError, DamagedError."""
    return _one(trace, exchange_id, lambda reader, row: reader.request_body(row))


def response_body(trace: Trace, exchange_id: ExchangeId) -> bytes:
    """The response's body as on the wire, b"" where none came; NotFoundError, DamagedError."""
    return b"".join(piece.data for piece in _one(trace, exchange_id, lambda reader, row: reader.arrivals(row)))


def chunks(trace: Trace, exchange_id: ExchangeId) -> tuple[tuple[int, int], ...]:
    """(at_ns, size) of each arrival of the response's body; NotFoundError, DamagedError."""
    return tuple((piece.at_ns, len(piece.data)) for piece in _one(trace, exchange_id, lambda reader, row: reader.arrivals(row)))


def unread(trace: Trace, reader_version: int) -> list[ExchangeId]:
    """Exchanges that have ended, or were interrupted, and have no call of this reader version, in order of start."""
    read = sa.and_(calls.c.exchange_id == exchanges.c.id, calls.c.reader_version == reader_version)
    query = (
        sa.select(exchanges.c.id, exchanges.c.ended_ns, exchanges.c.recorder_run_id)
        .outerjoin(calls, read)
        .where(calls.c.exchange_id.is_(None))
        .order_by(exchanges.c.started_ns, exchanges.c.id)
    )
    with trace.engine.connect() as connection:
        rows = connection.execute(query).all()
        living = leases.living(connection) if any(row[1] is None for row in rows) else set()
    return [ExchangeId(number) for number, ended_ns, lease in rows if ended_ns is not None or lease not in living]


def starts(trace: Trace, ids: Sequence[ExchangeId]) -> dict[ExchangeId, int]:
    """When these exchanges started, Unix-epoch ns; those that do not exist are left out."""
    found: dict[ExchangeId, int] = {}
    with trace.engine.connect() as connection:
        for some in batched(ids, _BATCH):
            rows = connection.execute(sa.select(exchanges.c.id, exchanges.c.started_ns).where(exchanges.c.id.in_(some)))
            found.update((ExchangeId(row.id), row.started_ns) for row in rows)
    return found


def _one[Found](trace: Trace, exchange_id: ExchangeId, read: _Read[Found]) -> Found:
    with trace.engine.connect() as connection:
        row = connection.execute(_ROWS, {"ids": [exchange_id]}).first()
        if row is None:
            raise _not_found(exchange_id)
        with damage_of(f"exchange e{exchange_id}"):
            return read(_Reader(connection, trace.codec), row)


def _not_found(exchange_id: int) -> NotFoundError:
    return NotFoundError(f"there is no exchange e{exchange_id} in this trace", hint="list them: playhead exchanges")


class _Reader:
    """Turns rows into exchanges on one connection."""

    def __init__(self, connection: sa.Connection, codec: Codec) -> None:
        self._connection = connection
        self._codec = codec
        self._paths = Paths(connection, codec)

    def exchange(self, row: _Row) -> Exchange:
        """All of an exchange."""
        found = Exchange(
            id=ExchangeId(row.id),
            started_ns=row.started_ns,
            sent_ns=row.sent_ns,
            ended_ns=row.ended_ns,
            transport=Transport(row.transport),
            origin=Origin(
                listener=row.listener,
                connection=row.connection,
                client_pid=row.client_pid,
                client_command=row.client_command,
                label=row.label,
            ),
            request=self._request(row),
            response=self._response(row),
            failure=_failure(row),
            own_ns=row.own_ns,
            stall_ns=row.stall_ns,
        )
        is_open = row.ended_ns is None and row.recorder_run_id not in leases.living(self._connection)
        return interrupted(found) if is_open else found

    def _request(self, row: _Row) -> Request:
        return Request(method=row.method, url=row.url, headers=self._headers(row.request_headers), body=self.request_body(row))

    def request_body(self, row: _Row) -> bytes:
        """The request's body as on the wire."""
        if row.request_body_id is None:
            return b"".join(piece.data for piece in journal.pieces(self._connection, row.id, journal.REQUEST))
        return self._body(row.request_body_id)

    def arrivals(self, row: _Row) -> tuple[Arrival, ...]:
        """The response's body in its pieces."""
        if row.response_body_id is None:
            return journal.pieces(self._connection, row.id, journal.RESPONSE)
        return arrivals(unpack_chunks(self._codec.decompress(row.arrivals)), self._body(row.response_body_id))

    def _response(self, row: _Row) -> Response | None:
        if row.status is None:
            return None
        headers = self._headers(row.response_headers)
        return Response(status=row.status, headers=headers, headers_at_ns=row.headers_ns, arrivals=self.arrivals(row))

    def _headers(self, blob: bytes) -> Headers:
        return unpack_headers(self._codec.decompress(blob))

    def _body(self, number: int) -> bytes:
        """A body that is, to the byte, what was written; ValueError."""
        leaf, content, sha256 = self._row_of(number)
        found = self._paths.body(leaf, content)
        if hashlib.sha256(found).digest() != sha256:
            raise ValueError(f"the sha256 of body {number} is not that of its content")
        return found

    def _row_of(self, number: int) -> _BodyRow:
        leaf, content, sha256 = self._connection.execute(_BODY, {"body": number}).one()
        return leaf, content, sha256


class _FramedReader(_Reader):
    """Fetches the bodies of a batch at once, and puts no request together."""

    def __init__(self, connection: sa.Connection, codec: Codec) -> None:
        super().__init__(connection, codec)
        self._bodies: dict[int, _BodyRow] = {}
        self._known_headers: Recency[bytes, Headers] = Recency(_REMEMBERED_HEADERS)

    def fetch(self, rows: Iterable[_Row]) -> None:
        """Remembers the bodies of these exchanges, but for very large ones."""
        numbers = {each for row in rows for each in (row.request_body_id, row.request_decoded_body_id, row.response_body_id)} - {None}
        self._bodies = {row[0]: (row[1], row[2], row[3]) for row in self._connection.execute(_SMALL_BODIES, {"ids": sorted(numbers)})}

    def decoded_sha256(self, row: _Row) -> bytes | None:
        """Of the request's text, where a content-encoding was removed from it."""
        return None if row.request_decoded_body_id is None else self._row_of(row.request_decoded_body_id)[2]

    def _row_of(self, number: int) -> _BodyRow:
        return self._bodies.get(number) or super()._row_of(number)

    def _headers(self, blob: bytes) -> Headers:
        known = self._known_headers.get(blob)
        if known is None:
            known = super()._headers(blob)
            self._known_headers.put(blob, known)
        return known

    def _request(self, row: _Row) -> Request:
        number = row.request_decoded_body_id or row.request_body_id
        leaf, content, _ = self._row_of(number) if number is not None else (None, b"", b"")
        if leaf is None:
            return super()._request(row)
        headers = self._headers(row.request_headers)
        if row.request_decoded_body_id is not None:
            headers = tuple(pair for pair in headers if pair[0].lower() != "content-encoding")
        return Request(method=row.method, url=row.url, headers=headers, body=frame(self._codec.decompress(content)))


def _failure(row: _Row) -> Failure | None:
    if row.failure_kind is None:
        return None
    return Failure(kind=FailureKind(row.failure_kind), message=row.failure_message, at_ns=row.failed_ns)


def interrupted(exchange: Exchange, why: str = "the recorder stopped before this ended") -> Exchange:
    """An exchange in flight whose recorder is gone, as it must be read: it ended with the last thing known of it."""
    response = exchange.response
    stamps = [exchange.sent_ns or 0]
    if response is not None:
        stamps += [response.headers_at_ns, *(arrival.at_ns for arrival in response.arrivals[-1:])]
    last_ns = max(stamps)
    failure = Failure(kind=FailureKind.INTERRUPTED, message=why, at_ns=last_ns)
    return replace(exchange, failure=failure, ended_ns=last_ns)
