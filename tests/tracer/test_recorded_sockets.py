"""WebSockets through the real recorder: both sides fare as without it, and every response is an exchange of its own."""

import asyncio
import json
from pathlib import Path

import pytest
from faulty.steps import Step, cut, pause, reset, send, until_gone
from faulty.upstream import serving
from recorded import Recording, recording
from websocket_ends import BINARY, CLOSE, DEFLATE, PING, Client, Packer, answer, closing, create, hear, heard, upgraded

from storage import exchanges
from storage.records import Exchange, ExchangeRow, FailureKind, State, Transport
from tracer import reading, sockets

PATH = "/v1/responses"
PLAIN = Packer(masks=False)
GOODBYE = PLAIN.frames(closing(1000, "bye"), CLOSE)[0]


def said(*messages: bytes) -> bytes:
    return b"".join(frame for message in messages for frame in PLAIN.frames(message))


def read(running: Recording) -> tuple[list[ExchangeRow], list[Exchange]]:
    """What was kept, read as the commands read it: the upgrade first."""
    running.stop()
    reading.catch_up(running.trace)
    rows = exchanges.listing(running.trace)
    return rows, [exchanges.load(running.trace, row.id) for row in rows]


def body(exchange: Exchange) -> bytes:
    return exchange.response.body if exchange.response else b""


def closes(exchange: Exchange) -> str | None:
    assert exchange.response
    return dict(exchange.response.headers).get(sockets.CLOSE_HEADER)


def test_every_response_is_an_exchange(tmp_path: Path) -> None:
    """A prewarm and a turn: each message's text is a request, the messages that answer it the response, line by line as they came."""
    first, second = create(1, generate=False), create(1, before="resp_1")
    warm, done = answer("resp_1", ()), answer("resp_2")
    steps = [
        upgraded(),
        heard,
        send(said(*warm)),
        heard,
        heard,
        heard,
        *(send(said(message)) for message in done),
        heard,
        send(GOODBYE),
        cut,
    ]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url, PATH + "?key=sk-abcdefghijklmnop", headers=("Authorization: Bearer secret-secret", "session-id: one"))
        assert b"x-codex-turn-state: ts-1" in client.head
        client.say(first)
        client.wait_for(said(*warm))
        client.say(second, pieces=3)
        client.wait_for(said(*done))
        client.say(closing(1000), CLOSE)
        assert client.wait_for_end() == GOODBYE
        rows, (upgrade, one, two) = read(running)
        assert b"Bearer secret-secret" in server.asked[0].head
        assert running.told == []
    assert [(row.kind, row.transport, row.status, row.state) for row in rows] == [
        ("other", "http1", 101, "complete"),
        ("prewarm", "ws", 200, "complete"),
        ("turn", "ws", 200, "complete"),
    ]
    assert (one.request.body, two.request.body) == (first, second)
    assert (body(one), body(two)) == (b"\n".join(warm), b"\n".join(done))
    assert two.response
    assert len(two.response.arrivals) == len(done)
    assert one.request.url == server.url + PATH + "?key=***"
    assert ("session-id", "one") in one.request.headers
    assert "secret-secret" not in str(one.request.headers)
    assert rows[1].session == rows[2].session
    assert rows[2].thread == rows[1].thread
    assert (rows[2].usage.prompt, rows[2].usage.output) == (100, 2)
    assert (closes(upgrade), upgrade.request.body, body(upgrade)) == ("client 1000; upstream 1000 bye", b"", b"")
    stamps = [two.sent_ns or 0, two.response.headers_at_ns, *(each.at_ns for each in two.response.arrivals), two.ended_ns or 0]
    assert stamps == sorted(stamps)


def test_compressed_messages_pass_compressed_and_are_kept_in_the_clear(tmp_path: Path) -> None:
    """The very frames arrive, contexts and all; the record has the text."""
    packer, clear = Packer(masks=False, deflates=True), answer("resp_1", ("word ",) * 20)
    frames = [frame for message in clear for frame in packer.frames(message, pieces=2)]
    got: list[bytes] = []

    async def listen(peer: object) -> None:
        got.append(await hear(peer))  # type: ignore[arg-type]

    steps: list[Step] = [upgraded(DEFLATE), listen, *(send(frame) for frame in frames), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url, deflates=True)
        assert DEFLATE.encode() in client.head
        client.say(create(1, text="again and " * 400))
        client.wait_for(b"".join(frames))
        client.reset()
        _, (_, kept) = read(running)
    assert len(got[0]) < 400 < len(kept.request.body)
    assert (kept.request.body, body(kept)) == (create(1, text="again and " * 400), b"\n".join(clear))


def test_what_belongs_to_no_response_stays_with_the_upgrade(tmp_path: Path) -> None:
    """An unknown protocol: messages of both sides, text and bytes; pings pass and are not kept; it is listed as unread."""
    hello = said(b"hello") + PLAIN.frames(b"?", PING)[0] + PLAIN.frames(b"\x00\xff", BINARY)[0]
    with serving({"/live": [upgraded(), send(hello), heard, heard, heard, cut]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url, "/live")
        client.wait_for(hello)
        client.say(b'{"type":"session.update"}')
        client.say(b"!", PING)
        client.say(b"[1, 2]")
        assert client.wait_for_end() == b""
        (row,), (kept,) = read(running)
    assert (kept.request.body, body(kept)) == (b'{"type":"session.update"}\n[1, 2]', b"hello\n\x00\xff")
    assert (row.dialect, row.kind, row.state, row.abort_by) == (None, "other", "upstream_aborted", "upstream")


def test_a_socket_that_talks_for_ever_is_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to no response is bounded, and what is dropped is told once; a response after it is kept as ever."""
    monkeypatch.setattr(sockets, "KEPT_BYTES", 20)
    chatter = said(*(b"event %d" % number for number in range(9)))
    steps = [upgraded(), send(chatter), heard, send(said(*answer("resp_1"))), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.wait_for(chatter)
        client.say(create(1))
        client.wait_for(said(*answer("resp_1")))
        client.reset()
        _, (upgrade, kept) = read(running)
        (told,) = running.told
    assert body(upgrade) == b"event 0\nevent 1"
    assert "no longer kept" in told
    assert body(kept) == b"\n".join(answer("resp_1"))


@pytest.mark.parametrize(
    ("end", "message"),
    [
        pytest.param(cut, "without a close frame", id="closed"),
        pytest.param(reset, "without a close frame", id="reset"),
        pytest.param(
            send(PLAIN.frames(closing(1011, "gone, sk-abcdefghijklmnop"), CLOSE)[0]), "closed the socket: 1011 gone, ***", id="in words"
        ),
    ],
)
def test_an_upstream_that_dies_in_a_response(tmp_path: Path, end: Step, message: str) -> None:
    """What came is kept, half a message too, and who ended it; the client is shown no clean close that was never sent."""
    whole, half = answer("resp_1")[:2], said(b'{"type":"response.output_text.delta"}')[:20]
    steps = [upgraded(), heard, send(said(*whole)), *([send(half)] if end in (cut, reset) else []), pause(0.05), end, cut]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        got = client.wait_for_end()
        (_, row), (_, kept) = read(running)
    assert (row.state, row.abort_by) == (State.UPSTREAM_ABORTED, "upstream")
    assert kept.failure
    assert message in kept.failure.message
    if end in (cut, reset):
        assert got == said(*whole) + half
        assert body(kept) == b"\n".join([*whole, half[2:]])


def test_an_upstream_that_dies_before_it_answers(tmp_path: Path) -> None:
    """No message came: an error, and by whom."""
    with serving({PATH: [upgraded(), heard, cut]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        client.wait_for_end()
        (_, row), _ = read(running)
    assert (row.state, row.abort_by, row.status) == (State.ERROR, "upstream", None)


@pytest.mark.parametrize("leaves", ["reset", "close frame"])
def test_a_client_that_leaves_in_a_response(tmp_path: Path, leaves: str) -> None:
    """It was the client, and the upstream is let go at once; had the response ended, nothing would be amiss."""
    part = answer("resp_2")[:3]
    steps = [upgraded(), heard, send(said(*answer("resp_1"))), heard, send(said(*part)), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        client.wait_for(said(*answer("resp_1")))
        client.say(create(1, before="resp_1"))
        client.wait_for(said(*part))
        if leaves == "close frame":
            client.say(closing(1001), CLOSE)
        client.reset()
        assert server.hung_up.wait(10)
        rows, (upgrade, *_) = read(running)
    assert [(row.state, row.abort_by) for row in rows[1:]] == [(State.COMPLETE, None), (State.CLIENT_ABORTED, "client")]
    assert rows[2].response_bytes == len(b"\n".join(part))
    if leaves == "reset":
        assert (rows[0].state, closes(upgrade)) == (State.CLIENT_ABORTED, None)
    else:
        assert (rows[0].state, closes(upgrade)) == (State.COMPLETE, "client 1001")


def test_a_refusal_is_a_message(tmp_path: Path) -> None:
    """An error ends a response; named with a status it reads as one refused, and the socket goes on."""
    refused = json.dumps({"type": "error", "status": 429, "error": {"message": "Rate limit reached", "type": "rate_limit"}}).encode()
    odd = b'{"type":"error","status":"none","message":"What?"}'
    steps = [upgraded(), heard, send(said(refused)), heard, send(said(odd)), heard, send(said(*answer("resp_1"))), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        for wanted in ([refused], [odd], answer("resp_1")):
            client.say(create(1))
            client.wait_for(said(*wanted))
        client.reset()
        (_, *rows), _ = read(running)
    assert [(row.status, row.state, row.error) for row in rows] == [
        (429, "complete", "Rate limit reached"),
        (200, "complete", "What?"),
        (200, "complete", None),
    ]


def test_a_response_that_never_ends_gives_way_to_the_next(tmp_path: Path) -> None:
    """Two are asked for; the first is given up without a last word: what follows is the second's."""
    begun = answer("resp_1")[:2]
    steps = [upgraded(), heard, send(said(*begun)), heard, send(said(*answer("resp_2"))), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        client.wait_for(said(*begun))
        client.say(create(1))
        client.wait_for(said(*answer("resp_2")))
        client.reset()
        (_, first, second), (_, one, two) = read(running)
    assert (first.state, second.state) == (State.TRUNCATED, State.COMPLETE)
    assert (body(one), body(two)) == (b"\n".join(begun), b"\n".join(answer("resp_2")))


def test_frames_that_cannot_be_read_pass_all_the_same(tmp_path: Path) -> None:
    """What calls itself a WebSocket and is none: every byte passes, the loss is told, and the record is marked."""

    async def echo(peer: object) -> None:
        while data := await peer.reader.read(100):  # type: ignore[attr-defined]
            await peer.send(data[::-1])  # type: ignore[attr-defined]

    with serving({PATH: [upgraded(), echo]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        for message in (b"\x81\x05hello", b"\xff\x00\x01", b"z" * 90):
            client.socket.sendall(message)
            client.wait_for(message[::-1])
        client.reset()
        (kept,) = running.exchanges()
        (told,) = running.told
    assert "goes on unrecorded" in told
    assert kept.failure
    assert (kept.failure.kind, kept.failure.message[:31]) == (FailureKind.INTERRUPTED, "the frames of the upstream cann")


def test_a_failing_record_does_not_touch_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong in here, messages pass."""

    def fails(*_: object) -> None:
        raise RuntimeError("no")

    with (
        serving({PATH: [upgraded(), heard, send(said(*answer("resp_1"))), until_gone]}) as server,
        recording(tmp_path, server.url) as running,
    ):
        client = Client(running.url)
        monkeypatch.setattr(sockets.Socket, "_said", fails)
        client.say(create(1))
        client.wait_for(said(*answer("resp_1")))
        client.reset()
        (kept,) = running.exchanges()
        assert running.told == ["NOT RECORDED: a WebSocket goes on unrecorded: RuntimeError: no"]
    assert kept.failure
    assert kept.failure.kind is FailureKind.INTERRUPTED


def test_stopping_interrupts_a_response_and_does_not_wait_for_an_idle_socket(tmp_path: Path) -> None:
    """A response in flight gets its time; the socket itself could stay for days."""
    part = said(*answer("resp_1")[:2])
    answers = {PATH: [upgraded(), heard, send(part), until_gone], "/idle": [upgraded(), until_gone]}
    with serving(answers) as server, recording(tmp_path, server.url, drain_s=0.2) as running:
        idle, busy = Client(running.url, "/idle"), Client(running.url)
        busy.say(create(1))
        busy.wait_for(part)
        _, kept = read(running)
        idle.reset()
        busy.reset()
    assert [each.failure.kind for each in kept if each.failure] == [FailureKind.INTERRUPTED] * 3
    assert [each.transport for each in kept] == [Transport.HTTP1, Transport.HTTP1, Transport.WS]
    assert body(kept[2]) == b"\n".join(answer("resp_1")[:2])


def test_what_came_is_in_the_trace_while_the_socket_lives(tmp_path: Path) -> None:
    """A recorder that is killed loses no more than its last batch: responses in flight and what the upgrade keeps are journaled."""
    part = answer("resp_1")[:2]
    go_on = asyncio.Event()

    async def wait(_: object) -> None:
        await asyncio.wait_for(go_on.wait(), 30)

    steps: list[Step] = [upgraded(), send(said(b"hello")), heard, heard, send(said(*part)), wait, cut]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(b"note")
        client.say(create(1))
        client.wait_for(said(b"hello", *part))

        async def kept() -> list[Exchange]:
            for _ in range(100):
                rows = exchanges.listing(running.trace, everything=True)
                found = [exchanges.load(running.trace, row.id) for row in rows]
                if len(found) == 2 and all(body(each) for each in found) and found[0].request.body:
                    return found
                await asyncio.sleep(0.05)
            raise AssertionError("not in the trace in time")

        upgrade, response = asyncio.run(kept())
        server.loop.call_soon_threadsafe(go_on.set)
        client.wait_for_end()
    assert (upgrade.request.body, body(upgrade), upgrade.ended_ns) == (b"note", b"hello", None)
    assert (response.request.body, body(response), response.ended_ns) == (create(1), b"\n".join(part), None)
