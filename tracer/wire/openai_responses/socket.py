"""Responses over a WebSocket: which message asks for a response, which begins one, which is its last."""

import msgspec

from tracer.wire.openai_responses.answer import TERMINAL

ASKS = "response.create"
BEGINS = "response.created"
ENDS = TERMINAL | {"error"}


class _Typed(msgspec.Struct):
    type: str = ""


_TYPED = msgspec.json.Decoder(_Typed)


def message_type(text: bytes) -> str:
    """What a message calls itself; "" where it is no JSON object with a type."""
    try:
        return _TYPED.decode(text).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
