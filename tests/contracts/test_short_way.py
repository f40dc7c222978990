"""The short way of an answer in mid-stream: the same bytes for the client and in the trace as the long way; only what is plain takes it."""

import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from faulty.steps import Step, chunk, cut, head, last, pause, reset, send, split, whole
from faulty.upstream import serving
from recorded import ask, body_of, connect, recording, request

from storage.records import Exchange
from tracer import guards
from tracer.guards import short_way
from tracer.outcome import outcome

PATH = "/v1/messages"
EVENTS = [b"data: %d\n\n" % number for number in range(6)]
WIRE = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in EVENTS)
GAP = pause(0.03)
"""So that the next bytes are a read of their own."""

CASES: dict[str, list[Step]] = {
    "chunks": [head(), *(step for event in EVENTS for step in (chunk(event), GAP)), last()],
    "many chunks in a read": [head(), GAP, send(WIRE), GAP, send(WIRE), GAP, last()],
    "chunks split anywhere": [head(), split(WIRE, 5), GAP, split(WIRE, 7), GAP, send(WIRE), last()],
    "a split chunk, then whole ones": [head(), GAP, send(WIRE[:9]), GAP, send(WIRE[9:]), GAP, send(WIRE), GAP, last()],
    "sizes in capitals and with zeros": [head(), GAP, send(b"0A\r\n0123456789\r\n"), GAP, send(b"A\r\n0123456789\r\n"), GAP, last()],
    "extensions": [head(), GAP, send(b"3;name=x\r\nabc\r\n"), GAP, chunk(b"de"), GAP, last()],
    "trailers": [head(), GAP, chunk(b"abc"), GAP, last(b"x-cost: 1\r\n")],
    "the end with the last chunk": [head(), GAP, chunk(b"abc"), GAP, send(b"2\r\nde\r\n0\r\n\r\n")],
    "a large chunk": [head(), GAP, chunk(b"x" * 300_000), GAP, chunk(b"y"), GAP, last()],
    "a bad chunk": [head(), GAP, chunk(b"abc"), GAP, send(b"zz\r\nabc\r\n"), GAP],
    "a chunk longer than it says": [head(), GAP, chunk(b"abc"), GAP, send(b"3\r\nabcd\r\n"), GAP],
    "known length": [head(framing="Content-Length: 9"), GAP, send(b"abc"), GAP, send(b"def"), GAP, send(b"ghi")],
    "known length, and more": [head(framing="Content-Length: 6"), GAP, send(b"abc"), GAP, send(b"defghi"), GAP, cut],
    "known length, cut": [head(framing="Content-Length: 9"), GAP, send(b"abc"), GAP, send(b"def"), GAP, cut],
    "until close": [head(framing=""), GAP, send(b"abc"), GAP, send(b"def"), GAP, cut],
    "until close, reset": [head(framing=""), GAP, send(b"abc"), GAP, send(b"def"), GAP, reset],
    "chunks, cut": [head(), GAP, chunk(b"abc"), GAP, chunk(b"def"), GAP, cut],
    "chunks, reset": [head(), GAP, chunk(b"abc"), GAP, chunk(b"def"), GAP, reset],
}
LONG_ONLY = {"sizes in capitals and with zeros"}
"""No read of these is plain."""
FRAMED_BY_READS = {"a large chunk", "chunks split anywhere", "a split chunk, then whole ones"}
"""Framed anew wherever a read happens to end."""


def through(folder: Path, steps: Sequence[Step]) -> tuple[bytes, Exchange]:
    """What the client got, framing included, and what was kept."""
    folder.mkdir()
    with serving({PATH: [*steps, cut]}) as upstream, recording(folder, upstream.url) as running:
        answer = ask(running.url, PATH, b"{}")
        (kept,) = running.exchanges()
    return answer, kept


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each read that was offered to the short way, whether it took it."""
    found: list[bool] = []
    takes = short_way.ShortWay.takes

    def noted(self: short_way.ShortWay, wire: bytes) -> bool:
        found.append(takes(self, wire))
        return found[-1]

    monkeypatch.setattr(short_way.ShortWay, "takes", noted)
    return found


@pytest.mark.parametrize("name", CASES)
def test_both_ways_are_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[bool]) -> None:
    """To the byte for the client, and in what is kept: body, failure, outcome."""
    short = through(tmp_path / "short", CASES[name])
    assert any(taken) == (name not in LONG_ONLY)
    monkeypatch.setattr(guards, "GUARDS", tuple(each for each in guards.GUARDS if each is not guards.pass_shortly))
    taken.clear()
    long = through(tmp_path / "long", CASES[name])
    assert taken == []
    assert body_of(short[0]) == body_of(long[0])
    assert short[0] == long[0] or name in FRAMED_BY_READS
    first, second = (
        (kept.response and kept.response.body, kept.failure and kept.failure.kind, outcome(kept, None)) for _, kept in (short, long)
    )
    assert first == second


def test_a_connection_kept_alive_finds_each_answers_way(tmp_path: Path, taken: list[bool]) -> None:
    """Answers of every framing, one behind the other."""
    answers = {
        "/a": [head(), GAP, chunk(b"a"), GAP, chunk(b"b"), GAP, last()],
        "/b": [head(framing="Content-Length: 6"), GAP, send(b"abc"), GAP, send(b"def")],
        "/c": [whole(b"c")],
    }
    with serving(answers) as upstream, recording(tmp_path, upstream.url) as running:
        with connect(running.url) as client:
            got = b""
            for path in ("/a", "/b", "/c", "/a", "/b"):
                client.sendall(request(path, b"{}").replace(b"Connection: close\r\n", b""))
                end = {"/a": b"0\r\n\r\n", "/b": b"abcdef", "/c": b"\r\n\r\nc"}[path]
                got = b""
                while not got.endswith(end):
                    got += client.recv(65536)
        kept = running.exchanges()
    assert [each.response.body for each in kept if each.response] == [b"ab", b"abcdef", b"c", b"ab", b"abcdef"]
    assert taken.count(True) >= 4


def test_a_piece_is_an_arrival_whichever_way_it_came(tmp_path: Path) -> None:
    """Chunks that came in one read are told one by one."""
    _, kept = through(tmp_path / "a", CASES["many chunks in a read"])
    assert kept.response is not None
    assert [arrival.data for arrival in kept.response.arrivals] == EVENTS * 2


def test_a_client_that_does_not_read_stops_the_upstream(tmp_path: Path) -> None:
    """What it does not take is not gathered: the upstream has to wait; later it gets all of it."""
    size = 64 << 20
    listener, sent = socket.create_server(("127.0.0.1", 0)), [0]

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            asked = b""
            while not asked.endswith(b"{}"):  # a socket closed with something unread is reset
                asked += peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
            while sent[0] < size:
                sent[0] += peer.send(b"x" * min(1 << 18, size - sent[0]))

    serving_it = threading.Thread(target=serve)
    serving_it.start()
    with listener, recording(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}") as running, connect(running.url) as client:
        client.sendall(request(PATH, b"{}"))
        before = -1
        while before != sent[0]:
            before = sent[0]
            time.sleep(0.3)
        assert 0 < sent[0] < size // 2
        answer = b"".join(iter(lambda: client.recv(1 << 20), b""))
        (kept,) = running.exchanges()
    serving_it.join(30)
    assert kept.response is not None
    assert (len(body_of(answer)), len(kept.response.body), kept.failure) == (size, size, None)


def test_what_is_relied_on_in_asyncio_is_there() -> None:
    """A reader knows who waits in `read`, and is fed by a method that can be stood in for."""

    async def waits() -> tuple[bool, bool]:
        reader = asyncio.StreamReader()
        before = reader._waiter  # type: ignore[attr-defined]
        reading = asyncio.ensure_future(reader.read(1))
        await asyncio.sleep(0)
        during = reader._waiter  # type: ignore[attr-defined]
        reader.feed_data(b"a")
        await reading
        return before is None, during is not None

    assert asyncio.run(waits()) == (True, True)


@pytest.mark.parametrize(
    ("wire", "found"),
    [
        (b"3\r\nabc\r\n", [b"abc"]),
        (b"3\r\nabc\r\n1\r\nd\r\n", [b"abc", b"d"]),
        (b"3\r\nabc", None),
        (b"3\r\nabc\r\n1", None),
        (b"3\r\nabcd\r\n", None),
        (b"0\r\n\r\n", None),
        (b"03\r\nabc\r\n", None),
        (b"A\r\n0123456789\r\n", None),
        (b"3;x\r\nabc\r\n", None),
        (b"3 \r\nabc\r\n", None),
        (b"+3\r\nabc\r\n", None),
        (b"fffffffff\r\n", None),
    ],
)
def test_whole_chunks(wire: bytes, found: list[bytes] | None) -> None:
    """Only whole ones, framed as mitmproxy would frame them."""
    assert short_way.whole_chunks(wire) == found
