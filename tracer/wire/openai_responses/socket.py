"""Responses over a WebSocket: which message asks for a response, which begins one, which is its last."""

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


_TYPED = msgspec.json.Decoder(_Typed)
_REFUSAL = msgspec.json.Decoder(_Refusal)


def message_type(text: bytes) -> str:
    """What a message calls itself; "" where it is no JSON object with a type."""
    try:
        return _TYPED.decode(text).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def refusal_status(text: bytes) -> int | None:
    """The HTTP status that an `error` message stands for; None where it names none."""
    try:
        found = _REFUSAL.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    status = found.status or found.status_code or 0
    return status if 400 <= status <= 599 else None
