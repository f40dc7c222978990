"""A Responses request that names the answer it goes on from, made one that says all: the body that `POST .../responses` takes.

The items stand as they were sent, and as they were answered.
"""

from tracer.wire import edits
from tracer.wire.answers import Answer
from tracer.wire.contract import Held
from tracer.wire.json_spans import items, kind, last, members
from tracer.wire.json_values import Raw, array, fields, string
from tracer.wire.openai_responses.answer import TERMINAL

_HEADS = ("tools", "instructions")
_OF_THE_SOCKET = ("type", "generate", "previous_response_id")
_NOTHING = (b"null", b"[]", b'""')


def whole(body: bytes, before: Held) -> bytes:
    """The body with all that was said before in its input. ValueError when it is no request.

    Its own tools and instructions take the place of those before; where it has none those before stand.
    """
    items_said = (*before.said, *_said(body))
    made = edits.put(edits.without(body, *_OF_THE_SOCKET), ("stream",), b"true")
    for name, value in _own_heads(body) or before.heads:
        made = edits.put(made, (name,), value)
    return edits.put(made, ("input",), b"[" + b",".join(items_said) + b"]")  # last: it may be very long


def held(body: bytes, before: Held, answered: tuple[bytes, ...]) -> Held:
    """What is held once the request has been answered with these items. ValueError when it is no request."""
    return Held(heads=_own_heads(body) or before.heads, said=(*before.said, *_said(body), *answered))


def output(found: Answer | None) -> tuple[bytes, ...]:
    """The items of an answer, each as it came: those that were done one by one, else those of the last word."""
    if found is None:
        return ()
    if found.events is None:
        return _items(fields(found.document).get("output"))
    done: dict[bytes, bytes] = {}
    final: tuple[bytes, ...] = ()
    for event in found.events:
        body = fields(event.data)
        called = string(body.get("type"))
        if called == "response.output_item.done" and "item" in body:
            done[bytes(body.get("output_index", b"%d" % len(done)))] = bytes(body["item"])
        elif called in TERMINAL:
            final = _items(fields(body.get("response")).get("output"))
    return tuple(done.values()) or final


def _items(raw: Raw | None) -> tuple[bytes, ...]:
    return tuple(bytes(item) for item in array(raw))


def _said(body: bytes) -> list[bytes]:
    """The input items of a request; a text is what a user says."""
    top = members(body)
    given = last(top, "input") if top else None
    if given is None:
        raise ValueError("the request has no input")
    if kind(body, given) == b'"':
        return [b'{"role":"user","content":%b}' % body[slice(*given)]]
    spans = items(body, given)
    if spans is None:
        raise ValueError("the input of the request is no list")
    return [body[start:end] for start, end in spans]


def _own_heads(body: bytes) -> tuple[tuple[str, bytes], ...]:
    found = fields(body)
    return tuple((name, bytes(found[name])) for name in _HEADS if name in found and bytes(found[name]) not in _NOTHING)
