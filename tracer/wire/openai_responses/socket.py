"""Responses over a WebSocket: which message asks for a response, which begins one, which is its last."""

import re

import msgspec

from tracer.wire.openai_responses.answer import TERMINAL

ASKS = "response.create"
BEGINS = "response.created"
ENDS = TERMINAL | {"error"}


class _Typed(msgspec.Struct):
    type: str = ""


class _Refusal(msgspec.Struct):
    status: int | None = None
    status_code: int | None = None


class _Response(msgspec.Struct):
    id: str | None = None


class _OfResponse(msgspec.Struct):
    response: _Response | None = None


_OF_RESPONSE = msgspec.json.Decoder(_OfResponse)
_TYPED = msgspec.json.Decoder(_Typed)
_REFUSAL = msgspec.json.Decoder(_Refusal)


_TYPE_FIRST = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*"type"[ \t\n\r]*:[ \t\n\r]*"([a-z_.]+)"')


def leading_type(text: bytes | bytearray) -> str | None:
    """What a message calls itself, where it says so first of all; it need not be whole."""
    found = _TYPE_FIRST.match(text)
    return found[1].decode() if found else None


def message_type(text: bytes) -> str:
    """What a message calls itself; "" where it is no JSON object with a type."""
    if first := leading_type(text):
        return first
    try:
        return _TYPED.decode(text).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def asks(text: bytes) -> bool:
    """Whether this is one `response.create`, or the beginning of one that was cut short."""
    try:
        return _TYPED.decode(text).type == ASKS
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        return leading_type(text) == ASKS and "truncated" in str(wrong)


def refusal_status(text: bytes) -> int | None:
    """The HTTP status that an `error` message stands for; None where it names none."""
    try:
        found = _REFUSAL.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    status = found.status or found.status_code or 0
    return status if 400 <= status <= 599 else None


def response_id(text: bytes) -> str | None:
    """The id of the response that a message is about; None where it names none."""
    try:
        found = _OF_RESPONSE.decode(text).response
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found.id if found else None
