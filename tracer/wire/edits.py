"""Changes single values in a JSON text and leaves every other byte as it was.

Paths are keys and indexes; what is missing on the way is made. It knows JSON, no dialect. ValueError when a text cannot carry the change.
"""

from collections.abc import Sequence

import msgspec

from tracer.wire.json_spans import Span, find, items, kind, last, members


def quoted(text: str) -> bytes:
    """A text as a JSON string."""
    return msgspec.json.encode(text)


def replaced(body: bytes, span: Span, value: bytes) -> bytes:
    """The text with one span replaced."""
    return body[: span[0]] + value + body[span[1] :]


def checked(value: str) -> bytes:
    """JSON text given by the user, as bytes."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError) as wrong:
        raise ValueError(f"not a JSON value: {value[:80]}") from wrong
    return value.strip().encode()


def steps(dotted: str) -> tuple[str | int, ...]:
    """`a.b.0` as keys and indexes."""
    return tuple(int(step) if step.isascii() and step.isdigit() else step for step in dotted.split("."))


def put(body: bytes, path: Sequence[str | int], value: bytes, span: Span | None = None) -> bytes:
    """The text with the value at `path` replaced, or put in at the end of the innermost object that is there."""
    whole = span or (0, len(body))
    found = find(body, path, whole)
    if found is not None:
        return replaced(body, found, value)
    head, rest = path[0], path[1:]
    inside = members(body, whole)
    if inside is None:
        raise ValueError(f"no JSON object to hold {head!r}")
    at = last(inside, str(head))
    if at is None:
        return _appended(body, whole, str(head), _nested(rest, value))
    if kind(body, at) == b"n":
        return replaced(body, at, _nested(rest, value))
    if isinstance(head, int) or not rest:
        raise ValueError(f"no place for {head!r}")
    return _put_inside(body, rest, value, at)


def without(body: bytes, *names: str) -> bytes:
    """The object without the members of these names; as it was where it has none."""
    found = members(body)
    if found is None:
        raise ValueError("no JSON object to take members from")
    kept = [member for member in found if member.key not in names]
    return body if len(kept) == len(found) else b"{" + b",".join(body[member.start : member.end] for member in kept) + b"}"


def _put_inside(body: bytes, rest: Sequence[str | int], value: bytes, at: Span) -> bytes:
    if isinstance(rest[0], int):
        inner = find(body, rest[:1], at)
        if inner is None or len(rest) < 2:
            raise ValueError(f"no item {rest[0]} in an array")
        return put(body, rest[1:], value, inner)
    return put(body, rest, value, at)


def _nested(path: Sequence[str | int], value: bytes) -> bytes:
    for step in reversed(path):
        value = b"{" + quoted(str(step)) + b":" + value + b"}"
    return value


def _appended(body: bytes, whole: Span, key: str, value: bytes) -> bytes:
    inside = members(body, whole) or ()
    fresh = quoted(key) + b":" + value
    if inside:
        end = inside[-1].end
        return replaced(body, (end, end), b"," + fresh)
    brace = body.index(b"{", whole[0]) + 1
    return replaced(body, (brace, brace), fresh)


def prefixed_at(body: bytes, text: str, *paths: Sequence[str | int]) -> bytes | None:
    """The body with `text` in front of the first string that stands at one of the paths; None when there is none."""
    for path in paths:
        span = find(body, path)
        if span is not None and kind(body, span) == b'"':
            at = span[0] + 1
            return replaced(body, (at, at), quoted(text)[1:-1])
    return None


def prefixed_content(body: bytes, path: Sequence[str | int], text: str, block: bytes) -> bytes | None:
    """The body with `text` in front of a message's content: of the string, of the first block's text, else as a block of its own.

    `block` is a text block without its text, as in `{"type":"text","text":`. None when the content is neither string nor array.
    """
    done = prefixed_at(body, text, path, (*path, 0, "text"))
    span = find(body, path)
    blocks = items(body, span) if span else None
    if done is not None or blocks is None or span is None:
        return done
    at = span[0] + 1
    return replaced(body, (at, at), block + quoted(text) + (b"}," if blocks else b"}"))
