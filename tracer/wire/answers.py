"""What came back, unpacked and cut into events with their times: an event stream, a JSON document, or an error page.

An event's time is that of the raw read that completed it. It does not know what any dialect's events mean.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from storage.records import Exchange, Response, Transport
from tracer.wire.content_encoding import Decoder
from tracer.wire.json_spans import leading_items
from tracer.wire.json_values import Fields, Raw, array, as_text, begins, fields, string
from tracer.wire.requests import header
from tracer.wire.sse import EventParser, ServerEvent

_MOST_ERROR_TEXT = 300
_HEAD_BYTES = 512
_EVENT_LINE = re.compile(rb"(?:data|event|id|retry)?:|(?:data|event)[\r\n]")
_UNSEEN = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Exactly one of `events` (a stream) and `document` (a JSON text) is filled, or `page` (anything else).

    `at_ns` is the time of the last read that brought something; `whole` says that nothing on the wire cut it short.
    """

    status: int
    at_ns: int
    whole: bool
    events: tuple[ServerEvent, ...] | None = None
    document: bytes | None = None
    page: bytes | None = None
    arrived: tuple[tuple[int, int], ...] = ()
    """(time, bytes of text there by then) of each read of a document."""

    @property
    def failed(self) -> bool:
        """Whether the status says that this is no answer but an error."""
        return self.status >= 400


def answer(exchange: Exchange) -> Answer | None:
    """The answer of an exchange; None when no head came."""
    response = exchange.response
    if response is None:
        return None
    pieces = tuple(_unpacked(response))
    at_ns = pieces[-1][0] if pieces else response.headers_at_ns
    whole = exchange.failure is None
    if exchange.transport is Transport.WS:
        return Answer(response.status, at_ns, whole, events=tuple(_lines(pieces)))
    if _is_stream(response, pieces):
        return Answer(response.status, at_ns, whole, events=tuple(_stream(pieces)))
    text = b"".join(piece for _, piece in pieces)
    if text.lstrip()[:1] in (b"{", b"["):
        return Answer(response.status, at_ns, whole, document=text, arrived=tuple(_sizes(pieces)))
    return Answer(response.status, at_ns, whole, page=text)


def _sizes(pieces: tuple[tuple[int, bytes], ...]) -> Iterator[tuple[int, int]]:
    size = 0
    for at_ns, piece in pieces:
        size += len(piece)
        yield at_ns, size


def _unpacked(response: Response) -> Iterator[tuple[int, bytes]]:
    decoder = Decoder(header(response.headers, "content-encoding"))
    for arrival in response.arrivals:
        if piece := decoder.feed(arrival.data):
            yield arrival.at_ns, piece


def _is_stream(response: Response, pieces: tuple[tuple[int, bytes], ...]) -> bool:
    """By what it looks like, then by what it calls itself: errors come as JSON under an event stream's name, and streams under JSON's."""
    head = b""
    for _, piece in pieces:
        head = (head + piece).lstrip(b"\xef\xbb\xbf \t\r\n")
        if len(head) >= _HEAD_BYTES:
            break
    if head[:1] in (b"{", b"[", b"<"):
        return False
    declared = "event-stream" in (header(response.headers, "content-type") or "")
    return declared or _EVENT_LINE.match(head) is not None


def _stream(pieces: tuple[tuple[int, bytes], ...]) -> Iterator[ServerEvent]:
    parser = EventParser()
    for at_ns, piece in pieces:
        yield from parser.feed(at_ns, piece)
    yield from parser.finish()


def _lines(pieces: tuple[tuple[int, bytes], ...]) -> Iterator[ServerEvent]:
    """WebSocket messages: one an arrival or in several, however it is laid out; else one JSON text a line."""
    pending = b""
    for at_ns, piece in pieces:
        if piece.rstrip().endswith(b"}") and _is_object(pending + piece):
            yield ServerEvent(at_ns, "", (pending + piece).strip())
            pending = b""
            continue
        *lines, pending = (pending + piece).split(b"\n")
        if pending.rstrip().endswith(b"}") and _is_object(pending):
            lines.append(pending)
            pending = b""
        yield from (ServerEvent(at_ns, "", line) for line in lines if line.strip())


def _is_object(text: bytes) -> bool:
    """Whether the text is one whole JSON object."""
    return bool(fields(text))


def array_items(found: Answer) -> list[tuple[int, bytes]] | None:
    """The whole items of a document that is an array, also one cut short, each with the time of the read that completed it."""
    text = found.document or b""
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] != b"[":
        return None
    ends = [size for _, size in found.arrived]
    return [(found.arrived[bisect_left(ends, end)][0], text[begin:end]) for begin, end in leading_items(text, start)]


# ---- errors in the provider's words ----------------------------------------------------------------------------------


def error_text(found: Answer) -> str | None:
    """What the provider said went wrong, from an answer that is no event stream; None when it said nothing."""
    if found.document is not None:
        return error_of(found.document)
    if found.page and found.failed:
        return _page_text(found.page)
    return None


def error_of(raw: Raw | None) -> str | None:
    """The message inside one of the usual error objects."""
    if begins(raw) == b"[":
        return next((found for item in array(raw) if (found := error_of(item))), None)
    if begins(raw) == b'"':
        return _short(string(raw) or "") or None
    body = fields(raw)
    inner = body.get("error")
    if begins(inner) == b"{":
        return said(fields(inner)) or _short(as_text(inner))
    if begins(inner) == b'"':
        return _short(string(inner) or "")
    if string(body.get("type")) == "error" or "choices" not in body:
        return said(body)
    return None


def said(body: Fields) -> str | None:
    """The message of an error object."""
    for key in ("message", "detail", "error_description", "title", "type", "code"):
        text = string(body.get(key))
        if text and not (key == "type" and text in ("error", "message")):
            return _short(text)
    return _short(as_text(body["detail"])) if "detail" in body else None


def _page_text(page: bytes) -> str | None:
    text = page[: 1 << 16].decode("utf-8", "replace")
    title = _TITLE.search(text)
    seen = title[1] if title else _UNSEEN.sub(" ", text)
    return _short(" ".join(html.unescape(seen).split())) or None


def _short(text: str) -> str:
    return text if len(text) <= _MOST_ERROR_TEXT else text[: _MOST_ERROR_TEXT - 1] + "…"
