"""Where the values of a JSON text stand, without re-serialising: members of an object, items of an array, a value by its path.

The heavy walking is done by msgspec's `Raw` (C); offsets come back by adding lengths over what stands between the values. Every answer
is exact or None: text that is not JSON, or nested too deep for the C stack, gives None. It knows JSON, no dialect.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

type Span = tuple[int, int]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_KEY = re.compile(rb'[ \t\n\r]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_SPACE = re.compile(rb"[ \t\n\r]*")
_SCALAR = re.compile(rb"[^ \t\n\r,\]}]+")
_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_COMMA, _OPEN, _QUOTE = b",{"[0], b"{"[0], b'"'[0]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object: `start` is where its key's quote opens, `value:end` the span of its value."""

    key: str
    start: int
    value: int
    end: int


def mend(text: bytes) -> bytes:
    """Lone surrogate escapes turned into U+FFFD at the same length: Python and JavaScript clients send them, strict parsers refuse them."""
    if not _SURROGATE.search(text):
        return text
    return _ESCAPE.sub(lambda found: b"\\ufffd" if found[1] else found[0], text)


def members(text: bytes, span: Span | None = None) -> tuple[Member, ...] | None:
    """The members of the object at `span` (whole text when None) in order, doubled keys included; None when there is no valid object."""
    start, end = span or (0, len(text))
    try:
        values = _OBJECT.decode(memoryview(text)[start:end])
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        mended = mend(text[start:end])
        if mended == text[start:end]:
            return None
        return _shifted(members(mended), start)
    return _walk_object(text, text.index(b"{", start, end) + 1, values)


def _shifted(found: tuple[Member, ...] | None, by: int) -> tuple[Member, ...] | None:
    if found is None or not by:
        return found
    return tuple(Member(each.key, each.start + by, each.value + by, each.end + by) for each in found)


def _walk_object(text: bytes, at: int, values: dict[str, msgspec.Raw]) -> tuple[Member, ...]:
    """Walks an object already known to be valid, from behind its brace."""
    found = []
    while key := _KEY.match(text, at):
        value = key.end()
        name = _key_text(key[1])
        end = _value_end(text, value, values.get(name))
        found.append(Member(name, key.start(1) - 1, value, end))
        at = _skip_space(text, end)
        if text[at] != _COMMA:
            break
        at += 1
    return tuple(found)


def _key_text(raw: bytes) -> str:
    return _STRING.decode(b'"%b"' % raw) if b"\\" in raw else raw.decode()


def _value_end(text: bytes, at: int, known: msgspec.Raw | None) -> int:
    """The end of the value at `at`; `known` is the value that the last member of this name has, mostly this one."""
    if known is not None:
        raw = bytes(known)
        end = at + len(raw)
        if text.startswith(raw, at) and text[end] in b" \t\n\r,}":
            return end
    return _scan_value(text, at)


def _scan_value(text: bytes, at: int) -> int:
    """The end of a valid JSON value by its brackets: for the values that doubled keys hide."""
    depth = 0
    if text[at] not in b'"[{':
        scalar = _SCALAR.match(text, at)
        return scalar.end() if scalar else at
    for token in _STRUCTURE.finditer(text, at):
        mark = token[0]
        depth += (mark in (b"{", b"[")) - (mark in (b"}", b"]"))
        if not depth:
            return token.end()
    return len(text)


def _skip_space(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def items(text: bytes, span: Span | None = None) -> list[Span] | None:
    """The spans of the items of the array at `span` (whole text when None); None when there is no valid array."""
    start, end = span or (0, len(text))
    try:
        values = _ARRAY.decode(memoryview(text)[start:end])
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        mended = mend(text[start:end])
        if mended == text[start:end]:
            return None
        found = items(mended)
        return found if found is None else [(a + start, b + start) for a, b in found]
    return _walk_array(text, text.index(b"[", start, end) + 1, values)


def _walk_array(text: bytes, at: int, values: list[msgspec.Raw]) -> list[Span]:
    found: list[Span] = []
    for value in values:
        if text[at] in b" \t\n\r":
            at = _skip_space(text, at)
        end = at + len(value)
        found.append((at, end))
        at = end
        if text[at] != _COMMA:
            at = _skip_space(text, at)
        at += 1
    return found


def leading_items(text: bytes, start: int) -> list[Span]:
    """The spans of the objects and arrays that stand whole at the head of the array at `start`, which may be cut short or invalid."""
    found: list[Span] = []
    depth = begun = 0
    for token in _STRUCTURE.finditer(text, start):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
            begun = token.start() if depth == 2 else begun
        elif mark in (b"}", b"]"):
            depth -= 1
            if depth < 1:
                break
            if depth == 1:
                found.append((begun, token.end()))
    return found


def member(text: bytes, key: str, span: Span | None = None) -> Span | None:
    """The span of the value that a parser would give for `key`: the last of that name; None when there is none."""
    found = members(text, span)
    return last(found, key) if found else None


def last(found: Sequence[Member], key: str) -> Span | None:
    """The value's span of the last member of that name."""
    for each in reversed(found):
        if each.key == key:
            return each.value, each.end
    return None


def find(text: bytes, path: Sequence[str | int], span: Span | None = None) -> Span | None:
    """The span of the value at `path` (keys and indexes); None when the path leads nowhere."""
    at = span or (0, len(text))
    for step in path:
        inner = member(text, step, at) if isinstance(step, str) else _item(text, step, at)
        if inner is None:
            return None
        at = inner
    return at


def _item(text: bytes, index: int, span: Span) -> Span | None:
    found = items(text, span)
    return found[index] if found and -len(found) <= index < len(found) else None


def kind(text: bytes, span: Span) -> bytes:
    """The first character of a value: `{`, `[`, `"`, a digit, `t`, `f`, `n`."""
    return text[span[0] : span[0] + 1]
