"""Images and files in requests: found in every dialect's form, measured by their own heads, listed once in a trace."""

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from identity_traffic import Wire, assistant, user

from storage import media_rows
from storage.records import ExchangeId, Medium
from storage.schema import media as media_table
from storage.trace import Trace
from storage.writer import Writer
from tracer import media, reading, wire

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + bytes(9)
GIF = b"GIF89a" + struct.pack("<HH", 12, 34) + bytes(20)
WEBP = b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little") + bytes(8)
LOSSLESS = b"RIFF" + bytes(4) + b"WEBPVP8L" + bytes(5) + (99 | 49 << 14).to_bytes(4, "little") + bytes(8)
LOSSY = b"RIFF" + bytes(4) + b"WEBPVP8 " + bytes(10) + struct.pack("<HH", 100, 50) + bytes(8)
JPEG = b"\xff\xd8\xff\xe0" + struct.pack(">H", 6) + bytes(4) + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 70, 90) + bytes(12)


def coded(content: bytes) -> str:
    """Base64 as it stands in JSON."""
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("content", "size"),
    [(PNG, (640, 480)), (GIF, (12, 34)), (WEBP, (100, 50)), (LOSSLESS, (100, 50)), (LOSSY, (100, 50)), (JPEG, (90, 70))],
)
def test_pixels_by_the_files_own_head(content: bytes, size: tuple[int, int]) -> None:
    """Width and height, without decoding the picture."""
    assert media.pixels(content) == size
    assert media.pixels(content[:9]) is None


@pytest.mark.parametrize(
    ("value", "mime"),
    [
        ({"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": coded(PNG)}}]}, "image/png"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + coded(PNG)}}]}, "image/png"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + coded(PNG)}]}, "image/png"),
        ({"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": coded(PNG)}}]}, "image/png"),
        ({"type": "function_call_output", "output": [{"type": "input_file", "file_data": "data:;base64," + coded(PNG)}]}, None),
    ],
)  # fmt: skip
def test_every_dialects_form(value: Any, mime: str | None) -> None:
    """The same bytes in other words are the same medium."""
    (found,) = media.found(value)
    assert (found.size, found.width, found.height, found.kind, found.mime) == (len(PNG), 640, 480, "image", mime)
    assert any(mark in json.dumps(value).encode() for mark in media.MARKS)


def test_sounds_and_files() -> None:
    """Their kind is told by what the client says; what is no base64 is none."""
    sound = {"type": "input_audio", "input_audio": {"data": coded(bytes(40)), "format": "wav"}}
    paper = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": coded(b"%PDF-1.7" + bytes(40))}}
    assert [found.kind for found in media.found([sound, paper])] == ["audio", "file"]
    assert list(media.found({"media_type": "image/png", "data": "not base64!"})) == []
    deep: Any = "data:image/png;base64," + coded(PNG)
    for _ in range(40):
        deep = [deep]
    assert list(media.found(deep)) == []


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    """A trace of two turns with one picture, repeated in both, and again in a later message."""
    made = Wire()
    shown: Any = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + coded(PNG)}}]}
    again: Any = {"role": "user", "content": [{"type": "text", "text": "Again"}, *shown["content"]]}
    talk = [shown, assistant("I see."), again]
    with Trace.open(tmp_path / "a.trace", create=True) as opened:
        writer = Writer(opened, wire.split)
        for exchange in (
            made.exchange(talk[:1], assistant("I see.")),
            made.exchange(talk, assistant("Yes.")),
            made.exchange([user("x")], None),
        ):
            writer.put(exchange)
        writer.close()
        reading.catch_up(opened)
        yield opened


def test_a_picture_is_listed_once_however_often_it_stands_there(trace: Trace) -> None:
    """One row, three places; each request lists what stands in its prompt."""
    import sqlalchemy as sa

    with trace.engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(media_table)) == 1
    expected = Medium(sha256=media.medium(None, PNG).sha256, kind="image", mime="image/png", size=len(PNG), width=640, height=480)
    assert media_rows.of_exchange(trace, ExchangeId(1)) == [expected]
    assert media_rows.of_exchange(trace, ExchangeId(2)) == [expected, expected]
    assert media_rows.of_exchange(trace, ExchangeId(3)) == []
