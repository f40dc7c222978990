"""JSON as the dialect modules read and write it: texts of loosely typed content, bytes of events. Pure."""

from typing import Any

import orjson

from replay.simulator.values import Json


def packed(value: Any) -> bytes:
    """Compact JSON."""
    return orjson.dumps(value)


def data_event(value: Json, name: str | None = None) -> bytes:
    """One server-sent event with a JSON payload."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + packed(value) + b"\n\n"


def texts_of(content: Any) -> tuple[str, ...]:
    """Every text in a message's content: a string, a list of parts, or parts that hold parts."""
    if isinstance(content, str):
        return (content,)
    if isinstance(content, list):
        return tuple(text for part in content for text in texts_of(part))
    if isinstance(content, dict):
        return tuple(text for key in ("text", "content", "output") for text in texts_of(content.get(key)))
    return ()


def objects(value: Any) -> list[Json]:
    """The JSON objects of an array; anything else is left out."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def number(value: Any) -> int | None:
    """A non-negative whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def named(value: Any, key: str) -> Json:
    """The object under a key, `{}` where there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
