"""Server-sent events, whatever the pieces they come in."""

from hypothesis import given
from hypothesis import strategies as st

from tracer.wire.sse import EventParser, ServerEvent


def parse(*reads: bytes) -> list[ServerEvent]:
    """The events of a stream read in these pieces, at 1, 2, 3, ..."""
    parser = EventParser()
    found = [event for at, data in enumerate(reads, 1) for event in parser.feed(at, data)]
    return found + parser.finish()


def told(events: list[ServerEvent]) -> list[tuple[str, bytes]]:
    """Names and data."""
    return [(event.name, event.data) for event in events]


STREAM = (
    '\ufeff: a comment\nevent: première\ndata: {"a":\ndata: "ü"}\nid: 7\n\nretry: 250\ndata\n\nevent: gone\n\ndata:two\n\n: end\n'
).encode()
EVENTS = [("première", '{"a":\n"ü"}'.encode()), ("", b""), ("", b"two")]


def test_fields_comments_and_the_byte_order_mark() -> None:
    """By the standard: data lines joined, an event without data dropped, one space after the colon, the BOM ignored."""
    events = parse(STREAM)
    assert told(events) == EVENTS
    assert [event.id for event in events] == ["7", "7", "7"]


def test_retry_is_kept_when_it_is_a_number() -> None:
    """Anything else than digits leaves it."""
    parser = EventParser()
    parser.feed(1, b"retry: 250\nretry: soon\nretry:99999999999999999999\n\n")
    assert parser.retry_ms == 250


def test_any_split_and_any_line_end_gives_the_same_events() -> None:
    """Cut at every byte, inside a character and between CR and LF too."""
    for end in (b"\n", b"\r", b"\r\n"):
        stream = STREAM.replace(b"\n", end)
        for cut in range(len(stream) + 1):
            assert told(parse(stream[:cut], stream[cut:])) == EVENTS
        assert told(parse(*[bytes([byte]) for byte in stream])) == EVENTS


def test_an_event_has_the_time_of_the_read_that_completed_it() -> None:
    """The read with the blank line counts, not the one with the data."""
    assert [event.at_ns for event in parse(b"data: 1\n", b"\ndata: 2\n\ndata: 3", b"\n", b"\n")] == [2, 2, 4]


def test_a_lone_carriage_return_ends_the_line_at_once() -> None:
    """The LF that comes with the next read belongs to it and opens no line."""
    assert [(event.at_ns, event.data) for event in parse(b"data: 1\r\n\r", b"\ndata: 2\r", b"\n\r\n")] == [(1, b"1"), (3, b"2")]


def test_the_end_of_the_stream_completes_what_is_open() -> None:
    """With the time of the last read; an event without data stays dropped."""
    assert [(event.at_ns, event.data) for event in parse(b"data: 1\n", b"data: 2")] == [(2, b"1\n2")]
    assert parse(b"event: x") == []


LINES = st.sampled_from([b"data: x\n", b"\r", b"\n", b"\r\n", b"event: y\r\n", b"id: \x00", b"\xef\xbb\xbf"])


@given(st.lists(st.binary(max_size=20) | LINES))
def test_no_bytes_raise_and_no_split_matters(reads: list[bytes]) -> None:
    """The events of the pieces are those of the whole."""
    assert told(parse(*reads)) == told(parse(b"".join(reads)))
