"""OpenAI Chat Completions: `POST .../chat/completions`, streamed or not, as many servers speak it.

Prompt order is tools, messages. Knows this wire format only.
"""

from collections.abc import Sequence

from storage.records import Element, Exchange, Request, Split
from tracer.wire import answers, edits, rendering, requests, usage
from tracer.wire.contract import Call, Changes
from tracer.wire.json_spans import Member, Span, find, items, last, members
from tracer.wire.json_values import fields, is_true, string
from tracer.wire.layout import cuts, elements, occurrences
from tracer.wire.openai_chat import prompt
from tracer.wire.openai_chat.answer import hear

NAME = "openai_chat"

_SPOKEN_FOR = frozenset(("model", "messages", "tools", "functions", "stream"))
_TEXT_BLOCK = b'{"type":"text","text":'
_OWN_HOSTS = ("api.openai.com", ".openai.azure.com")
"""Where `max_tokens` is refused by newer models; other servers know it best."""


def matches(request: Request) -> bool:
    """A POST to `chat/completions` behind any prefix."""
    return request.method.upper() == "POST" and requests.path(request).endswith("/chat/completions")


def split(body: bytes) -> Split | None:
    """Each tool, each message; None when there are no messages."""
    top = members(body)
    messages = last(top, "messages") if top else None
    turns = items(body, messages) if messages else None
    if top is None or turns is None:
        return None
    marks = sorted(occurrences(body, b'"cache_control"') + occurrences(body, b'"refusal"'))
    found: list[Element] = []
    for key in ("tools", "functions"):
        span = last(top, key)
        found += elements(body, "tool", (items(body, span) or ()) if span else (), marks, _cuts)
    head = _head_length(body, turns)
    found += elements(body, "system", turns[:head], marks, _cuts)
    found += elements(body, "message", turns[head:], marks, _cuts)
    return Split(body, tuple(found))


def _head_length(body: bytes, turns: list[Span]) -> int:
    """How many messages at the head are the system's."""
    for index, (start, end) in enumerate(turns):
        if string(fields(body[start:end]).get("role")) not in ("system", "developer"):
            return index
    return len(turns)


def _cuts(body: bytes, span: Span, _marks: Sequence[int]) -> tuple[Span, ...]:
    return cuts(body, span, _is_volatile)


def _is_volatile(body: bytes, member: Member, depth: int) -> bool:
    """Cache markers; and the `refusal: null` that some clients keep from an answer and drop on resume."""
    if member.key == "refusal":
        return depth == 0 and body[member.value : member.end] == b"null"
    return member.key == "cache_control" and body[member.value : member.value + 1] in (b"{", b"n")


def render(group: str, element: bytes) -> str:
    """An element as a template would show it."""
    return rendering.tool(prompt.tool(element)) if group == "tool" else rendering.message(prompt.message(element))


def read(exchange: Exchange) -> Call:
    """Everything the exchange says."""
    body = fields(requests.text(exchange.request))
    found = answers.answer(exchange)
    chat = hear(found)
    heard = chat.heard
    return Call(
        model=string(body.get("model")) or heard.model,
        prompt=prompt.prompt(body),
        tools=prompt.tools(body),
        settings=requests.settings(body, _SPOKEN_FOR),
        streamed=is_true(body.get("stream")) or (found is not None and found.events is not None),
        reply=tuple(heard.reply),
        deltas=tuple(heard.deltas),
        stop=heard.stop,
        ended=heard.ended,
        usage=usage.chat(heard.usage, chat.timings),
        usage_raw=heard.usage_raw,
        response_id=heard.response_id,
        error=heard.error,
    )


# ---- declared changes ----------------------------------------------------------------------------------------------


def change(request: Request, changes: Changes) -> Request:
    """The request with the declared changes; ValueError when the body cannot carry them."""
    if changes == Changes():
        return request
    body = requests.editable(request)
    if changes.model is not None:
        body = edits.put(body, ("model",), edits.quoted(changes.model))
    if changes.max_output_tokens is not None:
        body = _with_limit(body, changes.max_output_tokens, requests.host(request))
    for name, text in changes.settings:
        body = edits.put(body, edits.steps(name), edits.checked(text))
    if changes.report_usage and is_true(fields(body).get("stream")):
        body = edits.put(body, ("stream_options", "include_usage"), b"true")
    if changes.prefix_nonce is not None:
        body = _with_nonce(body, changes.prefix_nonce)
    return requests.rewritten(request, body)


def _with_limit(body: bytes, tokens: int, host: str) -> bytes:
    """Under the name or names that the body uses; else under the one that the server takes."""
    names = [name for name in ("max_completion_tokens", "max_tokens") if find(body, (name,))]
    for name in names or ["max_completion_tokens" if host.endswith(_OWN_HOSTS) else "max_tokens"]:
        body = edits.put(body, (name,), str(tokens).encode())
    return body


def _with_nonce(body: bytes, nonce: str) -> bytes:
    """At the head of the first tool and of the first message: templates differ in which of the two comes first."""
    text = f"{nonce}\n"
    in_tool = edits.prefixed_at(body, text, ("tools", 0, "function", "description"), ("tools", 0, "custom", "description"))
    in_text = edits.prefixed_content(in_tool or body, ("messages", 0, "content"), text, _TEXT_BLOCK)
    if in_text is None and in_tool is None:
        raise ValueError("no place for a prefix nonce")
    return in_text or in_tool or body
