"""Exchanges made by hand for the tests of the dialects: `import wire_answers`."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from storage.records import Arrival, Element, Exchange, Failure, FailureKind, Request, Response, Split, Transport

SSE = "text/event-stream"
JSON = "application/json"


def dumps(value: Any) -> bytes:
    """Compact JSON, as most clients write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(value: Any, name: str | None = None) -> bytes:
    """One server-sent event."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + dumps(value) + b"\n\n"


def request(path: str, body: Any = None, *headers: tuple[str, str]) -> Request:
    """A POST with a JSON body."""
    raw = body if isinstance(body, bytes) else dumps({} if body is None else body)
    return Request(method="POST", url=f"http://127.0.0.1:8000{path}", headers=(("Content-Type", JSON), *headers), body=raw)


def exchange(asked: Request, pieces: Iterable[bytes], **how: Any) -> Exchange:
    """An exchange whose answer came in these pieces, the first after 100 ns, 100 ns apart."""
    arrivals = tuple(Arrival(100 * (index + 1), piece) for index, piece in enumerate(pieces))
    headers = (("Content-Type", how.get("kind", SSE)), *how.get("headers", ()))
    failure = how.get("failure")
    return Exchange(
        started_ns=1_790_000_000_000_000_000,
        request=asked,
        response=Response(status=how.get("status", 200), headers=headers, headers_at_ns=50, arrivals=arrivals),
        failure=Failure(kind=FailureKind(failure), message="cut", at_ns=1000) if failure else None,
        ended_ns=None if failure else 1000,
        transport=how.get("transport", Transport.HTTP1),
    )


def canonical(split: Split) -> list[tuple[str, bytes]]:
    """(group, bytes without cuts) of each element."""
    return [(element.group, without_cuts(split.body, element)) for element in split.elements]


def without_cuts(body: bytes, element: Element) -> bytes:
    """Written apart from the code it checks."""
    return bytes(byte for at, byte in enumerate(body[element.start : element.end], element.start) if not _inside(at, element.cuts))


def _inside(at: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= at < end for start, end in spans)


def check_layout(split: Split) -> None:
    """Spans are disjoint and within the body, cuts ascending, disjoint and within their element; the body comes back from both."""
    body, at = split.body, 0
    rebuilt: list[bytes] = []
    for element in sorted(split.elements, key=lambda each: each.start):
        assert at <= element.start < element.end <= len(body)
        rebuilt.append(body[at : element.start])
        edge = element.start
        for start, end in element.cuts:
            assert edge <= start < end <= element.end
            rebuilt.append(body[edge:start])
            rebuilt.append(body[start:end])
            edge = end
        rebuilt.append(body[edge : element.end])
        at = element.end
    assert b"".join([*rebuilt, body[at:]]) == body
