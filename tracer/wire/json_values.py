"""Reads JSON from strangers: one level at a time, the rest left as raw text, and never an exception.

`None`, `{}` or `[]` stand for what is not there or not of the kind asked for. Strings never hold lone surrogates.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from tracer.wire.json_spans import mend

type Raw = msgspec.Raw | bytes
type Fields = Mapping[str, Raw]

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_STRING = msgspec.json.Decoder(str)
_NUMBER = msgspec.json.Decoder(int | float)
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_MOST_BRACKETS = 64
_FAILURES = (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError)
_BIGGEST = 1 << 53


def _decode[T](decoder: msgspec.json.Decoder[T], raw: Raw | None) -> T | None:
    if raw is None:
        return None
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        return None
    except _FAILURES:
        return _decode_mended(decoder, bytes(raw))


def _decode_mended[T](decoder: msgspec.json.Decoder[T], raw: bytes) -> T | None:
    """Once more, with lone surrogates and invalid UTF-8 replaced."""
    mended = mend(raw.decode("utf-8", "replace").encode())
    if mended == raw:
        return None
    try:
        return decoder.decode(mended)
    except _FAILURES:
        return None


def fields(raw: Raw | None) -> Fields:
    """The members of an object, each value as raw text (the last of doubled keys); {} when it is none."""
    return _decode(_OBJECT, raw) or {}


def array(raw: Raw | None) -> list[msgspec.Raw]:
    """The items of an array as raw text; [] when it is none."""
    return _decode(_ARRAY, raw) or []


def string(raw: Raw | None) -> str | None:
    """A JSON string's text."""
    return _decode(_STRING, raw)


def integer(raw: Raw | None) -> int | None:
    """A count: a whole number from 0 to 2**53, also when written as 12.0."""
    number = _decode(_NUMBER, raw)
    if number is None or not 0 <= number <= _BIGGEST or number != int(number):
        return None
    return int(number)


def is_true(raw: Raw | None) -> bool:
    """Whether it is the literal true."""
    return raw is not None and bytes(raw) == b"true"


def present(raw: Raw | None) -> bool:
    """Whether there is a value other than null."""
    return raw is not None and bytes(raw) != b"null"


def begins(raw: Raw | None) -> bytes:
    """The first character of a value, which tells its kind; b"" when absent."""
    return b"" if raw is None else bytes(memoryview(raw)[:1])


def as_text(raw: Raw | None) -> str:
    """The JSON text as it stood."""
    return "" if raw is None else bytes(raw).decode("utf-8", "replace")


def value(raw: Raw | None) -> Any:
    """The parsed value; what nests too deep or holds what no parser takes stays JSON text."""
    if raw is None:
        return None
    text = bytes(raw)
    if text.count(b"[") + text.count(b"{") > _MOST_BRACKETS and _depth(text) > _MOST_BRACKETS:
        return as_text(raw)
    found = _decode(_ANYTHING, raw)
    return as_text(raw) if found is None and text != b"null" else found


def _depth(text: bytes) -> int:
    """How deep it nests at most, brackets inside strings counted too (which only makes it seem deeper)."""
    deepest = depth = 0
    for byte in text.translate(None, delete=bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
