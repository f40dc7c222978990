"""Gemini: `POST .../models/MODEL:generateContent`, `:streamGenerateContent` (events or a JSON array) and `:countTokens`.

The model stands in the URL. Prompt order is tools, system instruction, contents. Knows this wire format only.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote, unquote

from storage.records import Element, Exchange, Request, Split
from tracer.wire import answers, edits, rendering, requests, usage
from tracer.wire.contract import Call, Changes
from tracer.wire.gemini import prompt
from tracer.wire.gemini.answer import hear
from tracer.wire.json_spans import Span, find, items, kind, last, members
from tracer.wire.json_values import fields
from tracer.wire.layout import elements

NAME = "gemini"

_PATH = re.compile(r"(?:^|/)(?:models|tunedModels|endpoints)/([^/:]+):(generateContent|streamGenerateContent|countTokens)$")
_IN_URL = re.compile(r"((?:models|tunedModels|endpoints)/)[^/:?]+(:(?:generateContent|streamGenerateContent|countTokens))")
_SPOKEN_FOR = frozenset(("contents", "systemInstruction", "system_instruction", "tools"))
_TEXT_BLOCK = b'{"text":'


def matches(request: Request) -> bool:
    """A POST to one of the three methods of a model, behind any prefix."""
    return request.method.upper() == "POST" and _PATH.search(requests.path(request)) is not None


def split(body: bytes) -> Split | None:
    """Each function declared (or other entry of `tools`), the system instruction, each content; None when there are no contents."""
    top = members(body)
    contents = last(top, "contents") if top else None
    turns = items(body, contents) if contents else None
    if top is None or turns is None:
        return None
    tools = last(top, "tools")
    system = last(top, "systemInstruction") or last(top, "system_instruction")
    found: list[Element] = elements(body, "tool", _declared(body, tools), (), _nothing)
    if system and kind(body, system) != b"n":
        found.append(Element("system", *system))
    return Split(body, (*found, *elements(body, "message", turns, (), _nothing)))


def _nothing(_body: bytes, _span: Span, _marks: Sequence[int]) -> tuple[Span, ...]:
    return ()


def _declared(body: bytes, span: Span | None) -> list[Span]:
    """Entries that hold function declarations and nothing else are opened."""
    found: list[Span] = []
    for entry in (items(body, span) or ()) if span else ():
        inside = members(body, entry) or ()
        opened = None
        if len(inside) == 1 and inside[0].key in ("functionDeclarations", "function_declarations"):
            opened = items(body, (inside[0].value, inside[0].end))
        found.extend([entry] if opened is None else opened)
    return found


def render(group: str, element: bytes) -> str:
    """An element as a template would show it."""
    if group == "tool":
        return "".join(map(rendering.tool, prompt.opened(element)))
    if group == "system":
        return rendering.parts(prompt.parts(fields(element))) + "\n"
    return rendering.message(prompt.message(element))


def read(exchange: Exchange) -> Call:
    """Everything the exchange says."""
    body = fields(requests.text(exchange.request))
    place = _PATH.search(requests.path(exchange.request))
    found = answers.answer(exchange)
    heard = hear(found, counting=place is not None and place[2] == "countTokens")
    return Call(
        model=unquote(place[1]) if place else heard.model,
        prompt=prompt.prompt(body),
        tools=prompt.tools(body),
        settings=requests.settings(body, _SPOKEN_FOR),
        streamed=place is not None and place[2] == "streamGenerateContent",
        reply=tuple(heard.reply),
        deltas=tuple(heard.deltas),
        stop=heard.stop,
        ended=heard.ended,
        usage=usage.gemini(heard.usage),
        usage_raw=heard.usage_raw,
        response_id=heard.response_id,
        error=heard.error,
    )


# ---- declared changes ----------------------------------------------------------------------------------------------


def change(request: Request, changes: Changes) -> Request:
    """The request with the declared changes, the model's in the URL; ValueError when the body cannot carry them."""
    if changes == Changes():
        return request
    if changes.model is not None:
        request = _with_model(request, changes.model)
    if replace(changes, model=None) == Changes():
        return request
    body = requests.editable(request)
    if changes.max_output_tokens is not None:
        body = _with_limit(body, changes.max_output_tokens)
    for name, text in changes.settings:
        body = edits.put(body, edits.steps(name), edits.checked(text))
    if changes.prefix_nonce is not None:
        body = _with_nonce(body, changes.prefix_nonce)
    return requests.rewritten(request, body)


def _with_model(request: Request, model: str) -> Request:
    name = quote(model.removeprefix("models/"), safe="")
    url, count = _IN_URL.subn(lambda found: found[1] + name + found[2], request.url)
    if not count:
        raise ValueError("no model in the URL")
    return replace(request, url=url)


def _with_limit(body: bytes, tokens: int) -> bytes:
    snake = find(body, ("generation_config",)) is not None
    path = ("generation_config", "max_output_tokens") if snake else ("generationConfig", "maxOutputTokens")
    return edits.put(body, path, str(tokens).encode())


def _with_nonce(body: bytes, nonce: str) -> bytes:
    """At the head of the first tool and of the first text: templates differ in which of the two comes first."""
    text = f"{nonce}\n"
    names = ("functionDeclarations", "function_declarations")
    in_tool = edits.prefixed_at(body, text, *[("tools", 0, name, 0, "description") for name in names])
    body = in_tool or body
    in_text = edits.prefixed_at(body, text, ("systemInstruction", "parts", 0, "text"), ("system_instruction", "parts", 0, "text"))
    if in_text is None:
        in_text = edits.prefixed_content(body, ("contents", 0, "parts"), text, _TEXT_BLOCK)
    if in_text is None and in_tool is None:
        raise ValueError("no place for a prefix nonce")
    return in_text or body
