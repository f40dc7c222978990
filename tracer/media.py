"""Images and files that stand in an element of a request: decoded hash, size in bytes and pixels. Pure, for all dialects.

Knows the shapes in which dialects write bytes inside JSON, and the heads of the image formats that models take.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from storage.records import Medium

MARKS = (b"base64", b"inlineData", b"inline_data", b"file_data", b"input_audio")
"""One of these stands in every element that holds media."""
_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+=-]+)*;base64,", re.ASCII)
_DEEPEST = 12
_LEAST_BYTES = 16


def found(value: Any) -> Iterator[Medium]:
    """The media in one parsed element, in the order in which they stand there."""
    for mime, text in _encoded(value, 0):
        content = _decoded(text)
        if content is not None and len(content) >= _LEAST_BYTES:
            yield medium(mime, content)


def medium(mime: str | None, content: bytes) -> Medium:
    """What is known of some bytes."""
    width, height = pixels(content) or (None, None)
    kind = "image" if width is not None or (mime or "").startswith("image/") else "audio" if (mime or "").startswith("audio/") else "file"
    return Medium(sha256=hashlib.sha256(content).digest(), kind=kind, mime=mime, size=len(content), width=width, height=height)


def _encoded(value: Any, depth: int) -> Iterator[tuple[str | None, str]]:
    """(type, base64 text) wherever a dialect puts one."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        if value.startswith("data:") and (match := _URL.match(value)):
            yield match[1], value[match.end() :]
    elif isinstance(value, list):
        for item in value:
            yield from _encoded(item, depth + 1)
    elif isinstance(value, Mapping):
        text = value.get("data")
        if isinstance(text, str) and (mime := _type_beside(value)) is not None:
            yield mime, text
        else:
            for item in value.values():
                yield from _encoded(item, depth + 1)


def _type_beside(value: Mapping[str, Any]) -> str | None:
    """The media type beside a member `data` that is base64: Anthropic's `source`, Gemini's `inlineData`, OpenAI's `input_audio`."""
    for name in ("media_type", "mimeType", "mime_type"):
        if isinstance(mime := value.get(name), str) and value.get("type") in (None, "base64"):
            return mime
    form = value.get("format")
    return f"audio/{form}" if isinstance(form, str) else None


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


# ---- pixels --------------------------------------------------------------------------------------------------------


def pixels(content: bytes) -> tuple[int, int] | None:
    """(width, height) by the file's own head: PNG, GIF, WebP, JPEG; None where it has none that is known."""
    if content.startswith(b"\x89PNG\r\n\x1a\n") and len(content) >= 24:
        return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    if content[:6] in (b"GIF87a", b"GIF89a") and len(content) >= 10:
        return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP" and len(content) >= 30:
        return _webp(content)
    return _jpeg(content) if content[:2] == b"\xff\xd8" else None


def _webp(content: bytes) -> tuple[int, int] | None:
    match content[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(content[24:27], "little"), 1 + int.from_bytes(content[27:30], "little")
        case b"VP8L":
            bits = int.from_bytes(content[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return int.from_bytes(content[26:28], "little") & 0x3FFF, int.from_bytes(content[28:30], "little") & 0x3FFF
        case _:
            return None


def _jpeg(content: bytes) -> tuple[int, int] | None:
    """Walks the segments to the frame header."""
    at = 2
    while at + 9 < len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(content[at + 7 : at + 9], "big"), int.from_bytes(content[at + 5 : at + 7], "big")
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(content[at + 2 : at + 4], "big"))
    return None
