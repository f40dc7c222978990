"""Anthropic Messages: `POST .../v1/messages`, streamed or not, and `.../count_tokens`.

Prompt order is tools, system, messages, whatever the order in the body. Knows this wire format only.
"""

import re
from collections.abc import Sequence

from storage.records import Element, Exchange, Request, Split
from tracer.wire import answers, edits, rendering, requests, usage
from tracer.wire.anthropic_messages import prompt
from tracer.wire.anthropic_messages.answer import hear
from tracer.wire.contract import Call, Changes
from tracer.wire.json_spans import Member, Span, items, kind, last, members
from tracer.wire.json_values import array, begins, fields, is_true, string
from tracer.wire.layout import cuts, elements, kept, occurrences, with_cuts

NAME = "anthropic_messages"

_PATHS = ("/v1/messages", "/v1/messages/count_tokens")
_SPOKEN_FOR = frozenset(("model", "system", "messages", "tools", "stream"))
_TEXT_FIRST = tuple(b'{"role":"%b","content":[{"type":"text","text":"' % role for role in (b"user", b"system", b"assistant"))
_ONE_TEXT = re.compile(
    rb'\{"role":"(?:user|system|assistant)","content":(\[\{"type":"text","text":)"[^"\\]*+(?:\\.[^"\\]*+)*+"(\}\])(?=[,}])', re.DOTALL
)
"""A message whose content is one text block and nothing else; its groups are what string content lacks."""
_TEXT_BLOCK = b'{"type":"text","text":'


def matches(request: Request) -> bool:
    """A POST to the Messages path behind any prefix; without `/v1` only when the `anthropic-version` header is there."""
    if request.method.upper() != "POST":
        return False
    path = requests.path(request)
    if path.endswith(_PATHS):
        return True
    return path.endswith(("/messages", "/messages/count_tokens")) and requests.header(request.headers, "anthropic-version") is not None


def split(body: bytes) -> Split | None:
    """Each tool, each system block (or the string), each message; None when there are no messages."""
    top = members(body)
    if top is None:
        return None
    messages = last(top, "messages")
    turns = items(body, messages) if messages else None
    if turns is None:
        return None
    marks = occurrences(body, b'"cache_control"')
    tools, system = last(top, "tools"), last(top, "system")
    found = elements(body, "tool", (items(body, tools) or ()) if tools else (), marks, _cuts)
    found += elements(body, "system", _system(body, system), marks, _cuts)
    found += _as_strings(body, elements(body, "message", turns, marks, _cuts))
    return Split(body, tuple(found))


def _system(body: bytes, span: Span | None) -> list[Span]:
    if span is None:
        return []
    return [span] if kind(body, span) == b'"' else items(body, span) or []


def _as_strings(body: bytes, messages: list[Element]) -> list[Element]:
    """A message of one text block reads like one of string content: Claude Code turns the string into a block to mark it, and back."""
    for index, message in enumerate(messages):
        if message.cuts:
            text = kept(body, message)
            if block := _ONE_TEXT.match(text):
                messages[index] = with_cuts(message, (block.span(1), block.span(2)))
        elif body.startswith(_TEXT_FIRST, message.start) and (block := _ONE_TEXT.match(body, message.start, message.end)):
            messages[index] = Element("message", message.start, message.end, (block.span(1), block.span(2)))
    return messages


def _cuts(body: bytes, span: Span, _marks: Sequence[int]) -> tuple[Span, ...]:
    return cuts(body, span, _is_marker)


def _is_marker(body: bytes, member: Member, _depth: int) -> bool:
    return member.key == "cache_control" and body[member.value : member.value + 1] in (b"{", b"n")


def read(exchange: Exchange) -> Call:
    """Everything the exchange says."""
    body = fields(requests.text(exchange.request))
    found = answers.answer(exchange)
    heard = hear(found, counting=requests.path(exchange.request).endswith("/count_tokens"))
    return Call(
        model=string(body.get("model")) or heard.model,
        prompt=prompt.prompt(body),
        tools=tuple(prompt.tool(raw) for raw in array(body.get("tools"))),
        settings=requests.settings(body, _SPOKEN_FOR),
        streamed=is_true(body.get("stream")) or (found is not None and found.events is not None),
        reply=tuple(heard.reply),
        deltas=tuple(heard.deltas),
        stop=heard.stop,
        ended=heard.ended,
        usage=usage.anthropic(heard.usage),
        usage_raw=heard.usage_raw,
        response_id=heard.response_id,
        previous_response_id=string(fields(body.get("thread")).get("previous_message_id")),
        error=heard.error,
    )


def render(group: str, element: bytes) -> str:
    """An element as a template would show it."""
    if group == "tool":
        return rendering.tool(prompt.tool(element))
    if group == "system":
        return rendering.parts(prompt.parts(element) if begins(element) == b'"' else (prompt.part(element),)) + "\n"
    return rendering.message(prompt.message(element))


def change(request: Request, changes: Changes) -> Request:
    """The request with the declared changes; ValueError when the body cannot carry them."""
    if changes == Changes():
        return request
    body = requests.editable(request)
    if changes.model is not None:
        body = edits.put(body, ("model",), edits.quoted(changes.model))
    if changes.max_output_tokens is not None:
        body = edits.put(body, ("max_tokens",), str(changes.max_output_tokens).encode())
    for name, text in changes.settings:
        body = edits.put(body, edits.steps(name), edits.checked(text))
    if changes.prefix_nonce is not None:
        body = _with_nonce(body, changes.prefix_nonce)
    return requests.rewritten(request, body)


def _with_nonce(body: bytes, nonce: str) -> bytes:
    """At the head of the first tool and of the first text: templates differ in which of the two comes first."""
    text = f"{nonce}\n"
    in_tool = edits.prefixed_at(body, text, ("tools", 0, "description"))
    body = in_tool or body
    in_text = edits.prefixed_at(body, text, ("system",), ("system", 0, "text"))
    if in_text is None:
        in_text = edits.prefixed_content(body, ("messages", 0, "content"), text, _TEXT_BLOCK)
    if in_text is None and in_tool is None:
        raise ValueError("no place for a prefix nonce")
    return in_text or body
