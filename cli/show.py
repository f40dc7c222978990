"""`playhead show`: one exchange, thread or session as people read it, or the exact bytes of one exchange."""

import sys
from typing import TYPE_CHECKING, Any

import click

from cli import console, options, rows
from cli.exchanges import ending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.records import Exchange, ExchangeId, ExchangeRow, Medium, SessionRow
    from tracer.wire.contract import Call, Message, Part

SHOWN_LINES = 12
"""Lines of one text that are shown before it is cut short: `--raw` has the rest."""
SHOWN_CHARACTERS = 1600


@click.command()
@click.argument("which", metavar="ID")
@click.option("--raw", type=click.Choice(["request", "response"]), help="Write the exact bytes of this body to stdout.")
@click.option("--decoded", is_flag=True, help="With --raw: content-encoding (gzip, br, zstd) removed.")
@click.option("--chunks", is_flag=True, help="The arrivals of the response as [[at_ns, size], ...].")
@options.trace_option
@options.json_option
def show(trace: str | None, as_json: bool, which: str, raw: str | None, decoded: bool, chunks: bool) -> None:
    """Show one exchange (e12), thread (t3) or session (s1, its name, `latest`).

    \b
    playhead show latest
    playhead show e12
    playhead show e12 --raw request | jq .messages[-1]
    """
    from storage import ids
    from storage.records import ExchangeId
    from tracer import reading

    if decoded and not raw:
        raise click.UsageError("--decoded goes with --raw request or --raw response")
    if raw and as_json:
        raise click.UsageError("--raw writes bytes, --json a document: ask for one of them")
    with options.open_trace(trace) as opened:
        reading.catch_up(opened)
        kind, number = ids.parse(opened, which, "e" if raw or chunks else "set")
        if raw:
            sys.stdout.buffer.write(_body(opened, ExchangeId(number), raw, decoded=decoded))
        elif chunks:
            _chunks(opened, ExchangeId(number))
        elif kind == "e":
            _exchange(opened, ExchangeId(number), as_json=as_json)
        else:
            _tree(opened, kind, number, as_json=as_json)


# ---- bytes ---------------------------------------------------------------------------------------------------------


def _body(trace: Any, exchange_id: "ExchangeId", side: str, *, decoded: bool) -> bytes:
    from storage import exchanges as stored

    if not decoded:
        return stored.request_body(trace, exchange_id) if side == "request" else stored.response_body(trace, exchange_id)
    return _text(stored.load(trace, exchange_id), side)


def _text(exchange: "Exchange", side: str) -> bytes:
    """A body with its content-encoding removed. Raises PlayheadError when it cannot be."""
    from storage.errors import PlayheadError
    from tracer.wire import content_encoding

    message = exchange.request if side == "request" else exchange.response
    if message is None:
        return b""
    encoding = next((value for name, value in message.headers if name.lower() == "content-encoding"), "")
    text = content_encoding.decode(message.body, encoding)
    if text is None:
        raise PlayheadError(
            f"the {side}'s body cannot be decoded as {console.plain(encoding)}", hint="leave --decoded out to get the bytes as they came"
        )
    return text


def _chunks(trace: Any, exchange_id: "ExchangeId") -> None:
    from storage import exchanges as stored

    console.document([list(chunk) for chunk in stored.chunks(trace, exchange_id)])


# ---- one exchange --------------------------------------------------------------------------------------------------


def _exchange(trace: Any, exchange_id: "ExchangeId", *, as_json: bool) -> None:
    from storage import exchange_rows, media_rows
    from storage import exchanges as stored
    from tracer import wire

    row = exchange_rows.of_exchange(trace, exchange_id)
    exchange = stored.load(trace, exchange_id)
    read = wire.read(exchange)
    if as_json:
        decoded = exchange_rows.decoded_sha256(trace, exchange_id)
        media = [_medium_keys(medium) for medium in media_rows.of_exchange(trace, exchange_id)]
        proof = _proof(exchange, decoded) | {"media": media}
        console.document(_exchange_document(row, exchange, read[1] if read else None) | proof)
        return
    for line in _head(row, exchange):
        console.paragraph(line)
    for medium in media_rows.of_exchange(trace, exchange_id):
        pixels = f", {medium.width} x {medium.height} pixels" if medium.width else ""
        click.echo(f"      {medium.kind} {console.plain(medium.mime or '')}, {console.size(medium.size)}{pixels}")
    for line in _call_lines(read[1]) if read else _raw_lines(exchange):
        click.echo(line)


def _exchange_document(row: "ExchangeRow", exchange: "Exchange", call: "Call | None") -> dict[str, Any]:
    response = exchange.response
    return {
        **rows.exchange_keys(row),
        "request_headers": exchange.request.headers,
        "response_headers": response.headers if response else None,
        "failure": None
        if exchange.failure is None
        else {
            "kind": exchange.failure.kind,
            "message": exchange.failure.message,
            "at_ms": rows.milliseconds(exchange.failure.at_ns),
        },
        "reply": None if call is None else [_part_text(part) for part in call.reply],
        "tools": None if call is None else [tool.name for tool in call.tools],
        "messages": None if call is None else len(call.prompt),
    }


def _proof(exchange: "Exchange", decoded: "tuple[bytes | None, bytes | None]") -> dict[str, Any]:
    """What proves the bodies' text beside their bytes on the wire, and what the recorder itself may have added to the times."""
    request, response = (found.hex() if found else None for found in decoded)
    return {
        "request_decoded_sha256": request,
        "response_decoded_sha256": response,
        "own_ms": rows.milliseconds(exchange.own_ns),
        "stall_ms": rows.milliseconds(exchange.stall_ns),
    }


def _medium_keys(medium: "Medium") -> dict[str, Any]:
    return {
        "kind": medium.kind, "mime": medium.mime, "sha256": medium.sha256.hex(), "bytes": medium.size, "width": medium.width,
        "height": medium.height,
    }  # fmt: skip


def _head(row: "ExchangeRow", exchange: "Exchange") -> "Iterator[str]":
    tokens = [
        f"{console.count(figure)} {word}"
        for figure, word in ((row.usage.prompt, "prompt"), (row.usage.cached, "cached"), (row.usage.output, "output"))
        if figure is not None
    ]
    times = [
        f"{word} {console.milliseconds(rows.milliseconds(at_ns))}"
        for word, at_ns in (("TTFT", row.marks.first_content_ns), ("E2E", row.marks.last_content_ns), ("closed after", row.ended_ns))
        if at_ns is not None
    ]
    yield f"e{row.id}  {row.method} {console.plain(row.url)}"
    place = [rows.numbered("s", row.session), rows.numbered("t", row.thread), row.agent and console.plain(row.agent)]
    named = "  ".join(part for part in place if part)
    yield f"      {named}  {row.kind} {row.number or ''}".rstrip()
    yield f"      {rows.moment(row.started_ns)}  {ending(row)}  {console.plain(row.model or 'no model')}  {row.dialect or 'unread'}"
    yield f"      {', '.join(times) or 'no answer'}; {', '.join(tokens) or 'no tokens reported'}"
    yield f"      request {console.size(row.request_bytes)}, response {console.size(row.response_bytes)} in {row.chunks} reads"
    if exchange.own_ns is not None and exchange.stall_ns is not None:
        own, stall = (console.milliseconds(rows.milliseconds(value_ns)) for value_ns in (exchange.own_ns, exchange.stall_ns))
        yield f"      the recorder's own work {own}, its longest stall {stall}"
    if exchange.failure:
        yield f"      {exchange.failure.kind}: {console.plain(exchange.failure.message)}"
    if row.error:
        yield f"      the provider says: {console.plain(row.error)}"


def _call_lines(call: "Call") -> "Iterator[str]":
    if call.tools:
        yield from ("", f"tools ({len(call.tools)})", *_indented(", ".join(tool.name for tool in call.tools)))
    skipped = max(0, len(call.prompt) - 8)
    for place, message in enumerate(call.prompt):
        if place == 2 and skipped:
            yield from ("", f"... {skipped} more messages (--raw request has them all)")
        if place < 2 or place >= 2 + skipped:
            yield from _message_lines(message)
    if call.reply:
        yield from ("", "reply" + (f" ({console.plain(call.stop)})" if call.stop else ""))
        for part in call.reply:
            yield from _indented(_part_text(part))


def _message_lines(message: "Message") -> "Iterator[str]":
    yield from ("", console.plain(message.role))
    for part in message.parts:
        yield from _indented(_part_text(part))


def _part_text(part: "Part") -> str:
    """One part as text: what it is stands before what it says."""
    from tracer.wire.contract import Media, Opaque, Reasoning, Text, ToolCall, ToolResult

    match part:
        case Text(text):
            return text
        case Reasoning(text, _):
            return f"[thinking] {text}"
        case ToolCall(_, name, arguments):
            return f"[call] {name} {arguments}"
        case ToolResult(_, parts, is_error):
            return f"[{'error' if is_error else 'result'}] " + "\n".join(map(_part_text, parts))
        case Media(kind, mime, source):
            return f"[{kind}] {mime or ''} {console.size(len(source))}"
        case Opaque(kind, raw):
            return f"[{kind}] {raw}"


def _raw_lines(exchange: "Exchange") -> "Iterator[str]":
    for side, body in (("request", exchange.request.body), ("response", exchange.response.body if exchange.response else b"")):
        if body:
            yield from ("", side, *_indented(body[: 2 * SHOWN_CHARACTERS].decode("utf-8", "replace")))


def _indented(text: str) -> "Iterator[str]":
    """The beginning of a captured text, safe to print, each line set in."""
    lines = console.plain_lines(text[:SHOWN_CHARACTERS]).splitlines()
    for line in lines[:SHOWN_LINES]:
        yield f"    {line}"
    if len(lines) > SHOWN_LINES or len(text) > SHOWN_CHARACTERS:
        yield f"    ... {console.count(len(text))} characters in all"


# ---- a session or thread as a tree -----------------------------------------------------------------------------------


def _tree(trace: Any, kind: str, number: int, *, as_json: bool) -> None:
    from cli import tree
    from storage import exchange_rows
    from storage import sessions as stored

    found = exchange_rows.listing(trace, sessions=[number]) if kind == "s" else exchange_rows.of_thread(trace, number)
    drawn = tree.load(trace, found)
    session = next(iter(stored.listing(trace, ids=[number])), None) if kind == "s" else None
    if as_json:
        about = {} if session is None else rows.session_keys(session)
        console.document({"id": f"{kind}{number}", **about, **tree.document(drawn)})
        return
    if session is not None:
        for line in _session_lines(session):
            console.paragraph(line)
    tree.draw(drawn)


def _session_lines(session: "SessionRow") -> "Iterator[str]":
    took = console.duration((session.ended_ns - session.started_ns) / 1e9)
    origin = "" if session.forked_from is None else f", forked from s{session.forked_from}"
    yield f"s{session.id}  {console.plain(session.name or session.key)}  {console.plain(session.client or '')}  took {took}{origin}"
    if session.note:
        yield f"    {console.plain(session.note)}"
