"""Makes of one exchange what is stored of its meaning (a Reading) and what identity is told of it (a Sighting). Pure.

The request is read without its elements, which the prompt holds already: what a request costs is what is new in it.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from storage.records import Exchange, Reading, Request, Response
from tracer import wire
from tracer.identity import Reply, Sighting, Spawn
from tracer.identity.canonical import SHOWN_CHARACTERS, token, view
from tracer.identity.kinds import kind, offers_tools, system_texts
from tracer.identity.names import client_name
from tracer.identity.signals import signals
from tracer.outcome import failed_by, marks, outcome
from tracer.prompts import Prompt
from tracer.redaction import Redaction
from tracer.wire import content_encoding, requests
from tracer.wire.contract import Call, Opaque, Part, Reasoning, Text, ToolCall
from tracer.wire.json_values import fields, value
from tracer.wire.requests import header

_ELEMENTS = frozenset(("messages", "input", "contents", "tools", "system", "instructions", "systemInstruction", "system_instruction"))
_AGENT_ARGUMENTS = ("subagent_type", "agent_type", "agent_name", "agent", "name", "task_name")
_MOST_SPAWNS = 32
_SPAWN_CHARACTERS = 600
_UNKEYED = Redaction(b"")
"""For free text only, where nothing is fingerprinted: providers repeat the key they refuse in what they say of it."""


@dataclass(frozen=True, slots=True)
class Sighted:
    """One exchange read. `sighting` None: it is no model call and belongs to no conversation."""

    reading: Reading
    sighting: Sighting | None


def sighted(exchange: Exchange, prompt: Prompt, decoded_sha256: bytes | None = None) -> Sighted:
    """Reads one stored exchange that has ended. `decoded_sha256`: of its request's text, where a content-encoding has been removed."""
    assert exchange.id is not None
    assert exchange.ended_ns is not None
    small = _without_elements(exchange.request)
    read = wire.read(replace(exchange, request=small))
    call = read[1] if read else None
    body = {name: value(raw) for name, raw in fields(small.body).items()} if read else {}
    signs = signals(exchange, body, system_texts(prompt.views))
    shown = dict(signs)
    what = kind(requests.path(exchange.request), shown, prompt.views, body) if read else "other"
    state, abort_by = outcome(exchange, call)
    reading = Reading(
        exchange_id=exchange.id, state=state, abort_by=abort_by, dialect=read[0].NAME if read else None, kind=what,
        marks=marks(exchange, call), signals=signs,
        request_decoded_sha256=decoded_sha256 or _decoded_sha256(exchange.request),
        response_decoded_sha256=_decoded_sha256(exchange.response),
    )  # fmt: skip
    if call is None:
        return Sighted(reading, None)
    sighting = Sighting(
        exchange_id=exchange.id,
        started_ns=exchange.started_ns,
        ended_ns=exchange.started_ns + exchange.ended_ns,
        kind=what,
        client=client_name(shown),
        failed=failed_by(exchange, call, state),
        signs=shown,
        preamble=prompt.preamble,
        talk=prompt.talk,
        chain=prompt.chain,
        body_digest=hashlib.blake2b(small.body + prompt.key, digest_size=16).digest(),
        reply=reply(call.reply),
        response_id=call.response_id,
        offers_tools=offers_tools(prompt.views, body),
        is_streamed=call.streamed,
        model=call.model,
    )
    return Sighted(_with_call(reading, call), sighting)


def _decoded_sha256(message: Request | Response | None) -> bytes | None:
    """Of a body that has a content-encoding: what names its text; None where it has none, or cannot be decoded."""
    encoding = header(message.headers, "content-encoding") if message else None
    if message is None or not content_encoding.codings(encoding):
        return None
    text = content_encoding.decode(message.body, encoding)
    return None if text is None else hashlib.sha256(text).digest()


def _with_call(reading: Reading, call: Call) -> Reading:
    return replace(
        reading,
        model=call.model,
        streamed=call.streamed,
        stop=call.stop,
        error=None if call.error is None else _UNKEYED.text(call.error),
        usage=call.usage,
        usage_raw=call.usage_raw,
        response_id=call.response_id,
        previous_response_id=call.previous_response_id,
    )


def _without_elements(request: Request) -> Request:
    """The request with its content encoding removed and its elements left out."""
    text = requests.text(request)
    headers = tuple((name, value) for name, value in request.headers if name.lower() != "content-encoding")
    if text is None:
        return request
    body = fields(text)
    if not body:
        return replace(request, headers=headers, body=text)
    kept = {name: raw for name, raw in body.items() if name not in _ELEMENTS}
    return replace(request, headers=headers, body=msgspec.json.encode(kept))


def reply(parts: Iterable[Part]) -> Reply:
    """What an answer gave, as far as a later request can show it again."""
    texts: list[str] = []
    tokens: set[str] = set()
    spawns: list[Spawn] = []
    for part in parts:
        match part:
            case Text(text):
                texts.append(text[:SHOWN_CHARACTERS])
            case ToolCall(call_id, name, arguments):
                spawns.append(_spawn(call_id, name, arguments))
                tokens.update((call_id,) if call_id else ())
            case Reasoning(_, str(opaque)):
                tokens.add(token(opaque))
            case Opaque(_, raw):
                tokens |= view("item", raw.encode("utf-8", "replace")).tokens
            case _:
                pass
    return Reply(text=" ".join(texts), tokens=frozenset(tokens), spawns=tuple(spawns[:_MOST_SPAWNS]))


def _spawn(call_id: str | None, name: str, arguments: str) -> Spawn:
    found: Any = value(arguments.encode("utf-8", "replace")) if arguments else None
    given = found if isinstance(found, dict) else {}
    texts = tuple(text.strip()[:_SPAWN_CHARACTERS] for text in given.values() if isinstance(text, str) and text.strip())
    agent = next((given[key] for key in _AGENT_ARGUMENTS if isinstance(given.get(key), str)), None)
    return Spawn(call_id, name, texts, agent[:80] if agent else None)
