"""A Messages request of a thread that its server holds, made one that says all: the body that any server of the dialect takes."""

from tracer.wire import edits
from tracer.wire.answers import Answer
from tracer.wire.anthropic_messages import split
from tracer.wire.contract import Held
from tracer.wire.json_spans import items, last, members
from tracer.wire.json_values import array, fields, string
from tracer.wire.layout import kept

_HEADS = ("tools", "system")
_NOTHING = (b"null", b"[]", b'""')
_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature", "input_json_delta": "partial_json"}
_PLACES = {"partial_json": "input"}


def whole(body: bytes, before: Held) -> bytes:
    """The body with all messages before its own, and without its thread. ValueError when it is no request.

    Its own tools and system text take the place of those before; where it has none those before stand.
    """
    made = edits.without(body, "thread")
    for name, value in _own_heads(body) or before.heads:
        made = edits.put(made, (name,), value)
    return edits.put(made, ("messages",), b"[" + b",".join((*before.said, *_messages(body))) + b"]")  # last: it may be very long


def held(body: bytes, before: Held, answered: tuple[bytes, ...]) -> Held:
    """What is held once the request has been answered with this message. ValueError when it is no request.

    Cache markers of earlier messages have moved on: no client sends them again, and no server takes more than four.
    """
    found = split(body)
    if found is None:
        raise ValueError("the request has no messages")
    said = [kept(body, element) for element in found.elements if element.group == "message"]
    return Held(heads=_own_heads(body) or before.heads, said=(*before.said, *said, *answered))


def output(found: Answer | None) -> tuple[bytes, ...]:
    """The message that an answer is, as a request carries it back; none where nothing came."""
    if found is None:
        return ()
    blocks = _streamed(found) if found.events is not None else [bytes(raw) for raw in array(fields(found.document).get("content"))]
    blocks = [block for block in blocks if not _is_empty(block)]
    return (b'{"role":"assistant","content":[' + b",".join(blocks) + b"]}",) if blocks else ()


def _is_empty(block: bytes) -> bool:
    """Whether this is a text without text, which no server takes back."""
    found = fields(block)
    return string(found.get("type")) == "text" and not string(found.get("text"))


def _streamed(found: Answer) -> list[bytes]:
    openings: dict[bytes, bytes] = {}
    texts: dict[tuple[bytes, str], list[str]] = {}
    for event in found.events or ():
        body = fields(event.data)
        called, index = string(body.get("type")), bytes(body.get("index", b"0"))
        if called == "content_block_start":
            openings[index] = bytes(body.get("content_block", b"{}"))
        elif called == "content_block_delta":
            delta = fields(body.get("delta"))
            key = _TEXTS.get(string(delta.get("type")) or "")
            if key is not None:
                texts.setdefault((index, key), []).append(string(delta.get(key)) or "")
    return [
        _block(opening, {key: "".join(said) for (at, key), said in texts.items() if at == index}) for index, opening in openings.items()
    ]


def _block(opening: bytes, texts: dict[str, str]) -> bytes:
    """A block as it was announced, with what its deltas brought."""
    for key, text in texts.items():
        value = edits.checked(text or "{}") if key == "partial_json" else edits.quoted((string(fields(opening).get(key)) or "") + text)
        opening = edits.put(opening, (_PLACES.get(key, key),), value)
    return opening


def _messages(body: bytes) -> list[bytes]:
    top = members(body)
    given = last(top, "messages") if top else None
    spans = items(body, given) if given else None
    if spans is None:
        raise ValueError("the request has no messages")
    return [body[start:end] for start, end in spans]


def _own_heads(body: bytes) -> tuple[tuple[str, bytes], ...]:
    found = fields(body)
    return tuple((name, bytes(found[name])) for name in _HEADS if name in found and bytes(found[name]) not in _NOTHING)
