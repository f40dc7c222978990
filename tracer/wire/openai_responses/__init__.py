"""OpenAI Responses: `POST .../responses`, streamed or not, and one `response.create` message of a WebSocket with what answered it.

Prompt order is tools, instructions, input. Knows this wire format only.
"""

import re
from collections.abc import Sequence

from storage.records import Element, Exchange, Request, Split
from tracer.wire import answers, edits, rendering, requests, usage
from tracer.wire.contract import Call, Changes
from tracer.wire.json_spans import Member, Span, items, kind, last, members
from tracer.wire.json_values import begins, fields, is_true, string
from tracer.wire.layout import cuts, elements, occurrences
from tracer.wire.openai_responses import prompt, socket
from tracer.wire.openai_responses.answer import hear

NAME = "openai_responses"

_PATHS = ("/responses", "/responses/compact", "/responses/input_tokens")
_SPOKEN_FOR = frozenset(("model", "instructions", "input", "tools", "stream", "type"))
_TEXT_BLOCK = b'{"type":"input_text","text":'
_PASSTHROUGH = "internal_chat_message_metadata_passthrough"
_ID_BEHIND_TYPE = re.compile(rb'\{"type":"[a-z_]+"(,"id":"[^"\\]*")')
_PASSTHROUGH_LAST = re.compile(rb',"%b":\{"turn_id":"[^"\\]*"\}\}\Z' % _PASSTHROUGH.encode())


def matches(request: Request) -> bool:
    """A POST to `responses` behind any prefix; also a `response.create` sent on a WebSocket there. The bare upgrade is none."""
    if not requests.path(request).endswith(_PATHS):
        return False
    return request.method.upper() == "POST" or socket.asks(request.body)


def split(body: bytes) -> Split | None:
    """Each tool, the instructions, each input item (a string is one); None when there is no input."""
    top = members(body)
    given = last(top, "input") if top else None
    if top is None or given is None:
        return None
    found: list[Element] = []
    if tools := last(top, "tools"):
        found += elements(body, "tool", items(body, tools) or (), (), _cuts)
    instructions = last(top, "instructions")
    if instructions and kind(body, instructions) == b'"':
        found.append(Element("system", *instructions))
    given_items = [given] if kind(body, given) == b'"' else items(body, given)
    if given_items is None:
        return None
    return Split(body, (*found, *_input(body, given_items)))


def _input(body: bytes, spans: list[Span]) -> list[Element]:
    """The input items: volatile ids cut, but not where an id is all that an item says; those that bring tools as tools."""
    marks = sorted(occurrences(body, b'"id"') + occurrences(body, b'"%b"' % _PASSTHROUGH.encode()) + occurrences(body, b'"refusal"'))
    found = elements(body, "item", spans, marks, _cuts)
    for called, group in ((b'"item_reference"', "item"), (b'"additional_tools"', "tool")):
        for index in _of_type(body, spans, called):
            kept = found[index].cuts if group == "tool" else ()
            found[index] = Element(group, *spans[index], kept)
    return found


def _of_type(body: bytes, spans: list[Span], quoted_type: bytes) -> list[int]:
    if quoted_type not in body:
        return []
    return [
        index
        for index, (start, end) in enumerate(spans)
        if body.find(quoted_type, start, end) >= 0 and string(fields(body[start:end]).get("type")) == quoted_type[1:-1].decode()
    ]


def _cuts(body: bytes, span: Span, marks: Sequence[int]) -> tuple[Span, ...]:
    """Codex writes `{"type":..., "id":..., ...}` with its metadata last: seen at a glance; all else is walked."""
    start, end = span
    found: list[Span] = []
    if head := _ID_BEHIND_TYPE.match(body, start, end):
        found.append(head.span(1))
    if tail := _PASSTHROUGH_LAST.match(body, marks[-1] - 1, end):
        found.append((tail.start(), end - 1))
    if len(found) == len(marks) and found[0][0] == marks[0] - 1:
        return tuple(found)
    return cuts(body, span, _is_volatile)


def _is_volatile(body: bytes, member: Member, depth: int) -> bool:
    """Codex's item ids, random with every process, and its turn metadata; the `refusal: null` that Copilot drops on resume."""
    if depth == 0 and member.key in ("id", _PASSTHROUGH):
        return True
    return member.key == "refusal" and body[member.value : member.end] == b"null"


def render(group: str, element: bytes) -> str:
    """An element as a template would show it."""
    if group == "tool":
        return "".join(map(rendering.tool, prompt.opened(element)))
    if group == "system":
        return (string(element) or "") + "\n" if begins(element) == b'"' else rendering.message(prompt.message(element))
    return rendering.message(prompt.message(element))


def read(exchange: Exchange) -> Call:
    """Everything the exchange says."""
    body = fields(requests.text(exchange.request))
    found = answers.answer(exchange)
    heard = hear(found)
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
        usage=usage.responses(heard.usage),
        usage_raw=heard.usage_raw,
        response_id=heard.response_id,
        previous_response_id=string(body.get("previous_response_id")),
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
        body = edits.put(body, ("max_output_tokens",), str(changes.max_output_tokens).encode())
    for name, text in changes.settings:
        body = edits.put(body, edits.steps(name), edits.checked(text))
    if changes.prefix_nonce is not None:
        body = _with_nonce(body, changes.prefix_nonce)
    return requests.rewritten(request, body)


def _with_nonce(body: bytes, nonce: str) -> bytes:
    """At the head of the first tool and of the first text: templates differ in which of the two comes first."""
    text = f"{nonce}\n"
    codex_tools = ("input", 0, "tools", 0)
    in_tool = edits.prefixed_at(
        body, text, ("tools", 0, "description"), (*codex_tools, "tools", 0, "description"), (*codex_tools, "description")
    )
    body = in_tool or body
    in_text = edits.prefixed_at(body, text, ("instructions",), ("input",))
    for index in range(3):  # the first item with content: tools or settings may stand before it
        if in_text is None:
            in_text = edits.prefixed_content(body, ("input", index, "content"), text, _TEXT_BLOCK)
    if in_text is None and in_tool is None:
        raise ValueError("no place for a prefix nonce")
    return in_text or body
