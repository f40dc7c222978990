"""Exchanges on their way into the trace: a row when one begins, its parts as they become known, its final form when it ends.

Works inside the transaction of the connection it is given, under its write lock. It knows no queue and no thread.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from storage import journal
from storage.bodies import EMPTY_SHA256, Bodies
from storage.numbering import Numbering
from storage.packing import Codec, pack_chunks, pack_headers
from storage.recency import Recency
from storage.records import Arrival, Exchange, FailureKind, Origin, Replayed, Request, Response, Splitter, State
from storage.schema import exchanges, origins, replayed

_STATES = {
    FailureKind.CLIENT_LEFT: State.CLIENT_ABORTED,
    FailureKind.SERVER_CUT: State.UPSTREAM_ABORTED,
    FailureKind.TRUNCATED: State.TRUNCATED,
    FailureKind.UNREACHABLE: State.ERROR,
    FailureKind.TIMED_OUT: State.ERROR,
    FailureKind.INTERRUPTED: State.INTERRUPTED,
}

_NEW = sa.insert(exchanges)
_NEW_REPLAYED = sa.insert(replayed)
_CHANGE = sa.update(exchanges).where(exchanges.c.id == sa.bindparam("exchange"))
"""Sets the columns that its parameters name; statements made once cost a third of those made anew."""
_NEW_ORIGIN = sa.insert(origins)
_ORIGIN = ("listener", "connection", "client_pid", "client_command", "label")
_SAME_ORIGIN = sa.select(origins.c.id).where(sa.and_(*(origins.c[name].is_not_distinct_from(sa.bindparam(name)) for name in _ORIGIN)))


def wire_state(exchange: Exchange) -> State:
    """What the wire alone says of how an exchange ended."""
    if exchange.failure is not None:
        return _STATES[exchange.failure.kind]
    return State.IN_FLIGHT if exchange.ended_ns is None else State.COMPLETE


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request body that is in its final form; `content` is what it was."""

    content: bytes
    columns: dict[str, Any]


class Intake:
    """Writes exchanges under one lease; `forget` after a transaction that was rolled back."""

    def __init__(self, codec: Codec, splitter: Splitter, numbering: Numbering) -> None:
        self._codec = codec
        self._numbering = numbering
        self._bodies = Bodies(codec, numbering, splitter)
        self._origins: Recency[Origin, int] = Recency(256)
        self._deletions: int | None = None

    def begin(self, connection: sa.Connection) -> None:
        """A transaction begins: what is remembered of earlier rows does not hold where rows were deleted since."""
        self._numbering.restart()
        deletions = self._numbering.retired(connection).times
        if deletions != self._deletions:
            self.forget()
            self._deletions = deletions

    def forget(self) -> None:
        """Drops what is remembered of earlier rows."""
        self._bodies.forget()
        self._origins.clear()

    def open(self, connection: sa.Connection, exchange: Exchange, lease: int) -> int:
        """A row for an exchange in flight, without its bodies; its id."""
        number = self._numbering.take(connection, exchanges)
        nothing = {"request_bytes": 0, "request_sha256": EMPTY_SHA256, "response_bytes": 0, "response_sha256": EMPTY_SHA256, "chunks": 0}
        connection.execute(_NEW, self._head(connection, exchange) | nothing | {"id": number, "recorder_run_id": lease})
        return number

    def know_request(self, connection: sa.Connection, number: int, exchange: Exchange) -> StoredRequest:
        """The whole request is known: its body takes its final form."""
        stored = self._request(connection, exchange.request)
        connection.execute(_CHANGE, stored.columns | {"exchange": number, "sent_ns": exchange.sent_ns})
        journal.drop(connection, number, journal.REQUEST)
        return stored

    def know_head(self, connection: sa.Connection, number: int, response: Response) -> None:
        """The head of the response is known."""
        connection.execute(_CHANGE, self._response_head(response) | {"exchange": number})

    def note(self, connection: sa.Connection, number: int, side: str, pieces: list[Arrival]) -> None:
        """Puts pieces that have come into the journal."""
        journal.add(connection, self._numbering, pieces, exchange=number, side=side)

    def close(self, connection: sa.Connection, number: int, exchange: Exchange, stored: StoredRequest | None) -> None:
        """The final form of an exchange that had a row. `stored` as `know_request` gave it, if that was asked."""
        connection.execute(_CHANGE, self._whole(connection, exchange, stored) | {"exchange": number, "recorder_run_id": None})
        journal.drop(connection, number)

    def put(self, connection: sa.Connection, exchange: Exchange) -> int:
        """A whole exchange at once; its id."""
        row = self._whole(connection, exchange, None)
        number = self._numbering.take(connection, exchanges)
        connection.execute(_NEW, row | {"id": number, "recorder_run_id": None})
        return number

    def bind(self, connection: sa.Connection, number: int, turn: Replayed) -> None:
        """Says which run and recorded exchange an exchange belongs to."""
        row = {"exchange_id": number, "run_id": turn.run_id, "source_exchange_id": turn.source_exchange}
        connection.execute(_NEW_REPLAYED, row | {"copy": turn.copy, "ready_ns": turn.ready_ns})

    def _whole(self, connection: sa.Connection, exchange: Exchange, stored: StoredRequest | None) -> dict[str, Any]:
        if stored is None or stored.content != exchange.request.body:
            stored = self._request(connection, exchange.request)
        return self._head(connection, exchange) | stored.columns | self._response(connection, exchange.response)

    def _head(self, connection: sa.Connection, exchange: Exchange) -> dict[str, Any]:
        """All columns but those of bodies and response."""
        request, failure = exchange.request, exchange.failure
        return {
            "started_ns": exchange.started_ns,
            "sent_ns": exchange.sent_ns,
            "ended_ns": exchange.ended_ns,
            "transport": exchange.transport.value,
            "method": request.method,
            "url": request.url,
            "state": wire_state(exchange).value,
            "failure_kind": failure.kind.value if failure else None,
            "failure_message": failure.message if failure else None,
            "failed_ns": failure.at_ns if failure else None,
            "own_ns": exchange.own_ns,
            "stall_ns": exchange.stall_ns,
            "origin_id": self._origin(connection, exchange.origin),
            "request_headers": self._codec.compress(pack_headers(request.headers)),
        }

    def _request(self, connection: sa.Connection, request: Request) -> StoredRequest:
        body, decoded = self._bodies.keep_request(connection, request)
        columns = {
            "request_body_id": body.id,
            "request_decoded_body_id": decoded,
            "request_bytes": len(request.body),
            "request_sha256": body.sha256,
        }
        return StoredRequest(request.body, columns)

    def _response_head(self, response: Response) -> dict[str, Any]:
        packed = self._codec.compress(pack_headers(response.headers))
        return {"status": response.status, "headers_ns": response.headers_at_ns, "response_headers": packed}

    def _response(self, connection: sa.Connection, response: Response | None) -> dict[str, Any]:
        if response is None:
            return {"chunks": 0, "response_bytes": 0, "response_sha256": EMPTY_SHA256}
        body = response.body
        kept = self._bodies.keep_whole(connection, body)
        chunks = pack_chunks([(arrival.at_ns, len(arrival.data)) for arrival in response.arrivals])
        return self._response_head(response) | {
            "response_body_id": kept.id,
            "response_bytes": len(body),
            "response_sha256": kept.sha256,
            "chunks": len(response.arrivals),
            "arrivals": self._codec.compress(chunks),
        }

    def _origin(self, connection: sa.Connection, origin: Origin) -> int:
        found = self._origins.get(origin)
        if found is None:
            values = {name: getattr(origin, name) for name in _ORIGIN}
            found = connection.scalar(_SAME_ORIGIN, values)
            if found is None:
                found = self._numbering.take(connection, origins)
                connection.execute(_NEW_ORIGIN, values | {"id": found})
            self._origins.put(origin, found)
        return found
