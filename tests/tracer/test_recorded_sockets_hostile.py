"""WebSockets of peers that do what they should not: nothing grows, stalls or is lost without need; both sides fare as without us."""

import asyncio
import json
import socket
import ssl
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import certificate
from faulty.steps import Peer, Step, pause, reset, send, until_gone, whole
from faulty.upstream import serving
from recorded import Recording, ask, recording
from websocket_ends import DEFLATE, PING, TEXT, Client, Packer, answer, create, heard, upgraded

from storage import exchanges
from storage.records import Exchange, FailureKind, State
from tracer import frames, reading, sockets

PATH = "/v1/responses"
PLAIN = Packer(masks=False)


def said(*messages: bytes) -> bytes:
    return b"".join(frame for message in messages for frame in PLAIN.frames(message))


def body(exchange: Exchange) -> bytes:
    return exchange.response.body if exchange.response else b""


def kept(running: Recording, enough: Callable[[list[Exchange]], bool]) -> list[Exchange]:
    """What the trace holds, while all goes on, once it is enough."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        rows = exchanges.listing(running.trace, everything=True)
        found = [exchanges.load(running.trace, row.id) for row in rows]
        if enough(found):
            return found
        time.sleep(0.05)
    raise AssertionError("not in the trace in time")


@pytest.mark.parametrize(("status", "head"), [("426 Upgrade Required", b" 426 "), ("401 Unauthorized", b" 401 ")])
def test_an_upgrade_that_is_refused(tmp_path: Path, status: str, head: bytes) -> None:
    """The refusal passes as it is, it is listed with its status, and the next request over HTTP is nobody's message."""
    refusal = whole(b'{"error":{"message":"HTTP only"}}', status)
    with serving({PATH: [refusal], "/after": [whole(b"{}")]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.wait_for(b'{"error":{"message":"HTTP only"}}')
        client.reset()
        assert head in client.head.splitlines()[0]
        ask(running.url, "/after", b"{}")
        running.stop()
        reading.catch_up(running.trace)
        rows = exchanges.listing(running.trace)
    assert [(row.kind, row.transport, row.status, row.state) for row in rows] == [
        ("other", "http1", int(head), "complete"),
        ("other", "http1", 200, "complete"),
    ]


def test_what_came_of_a_message_is_in_the_trace_before_it_is_whole(tmp_path: Path) -> None:
    """A recorder that is killed has half a request and half an answer too; once whole, both read as if they had come at once."""
    request, said_first, said_last = create(1, text="long " * 50_000), *answer("resp_1")[:1], answer("resp_1")[-1]
    (sent,) = Packer(masks=True).frames(request)
    wire = said(said_first)
    half_way = asyncio.Event()

    async def wait(_: Peer) -> None:
        await asyncio.wait_for(half_way.wait(), 30)

    steps: list[Step] = [upgraded(), heard, send(wire[:62]), wait, send(wire[62:] + said(said_last)), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.socket.sendall(sent[:70_000])
        (_, asked) = kept(running, lambda found: len(found) == 2 and len(found[1].request.body) > 60_000)
        assert request.startswith(asked.request.body)
        client.socket.sendall(sent[70_000:])
        (_, answered) = kept(running, lambda found: bool(body(found[1])))
        assert (answered.request.body, body(answered), answered.ended_ns) == (request, said_first[:60], None)
        server.loop.call_soon_threadsafe(half_way.set)
        client.wait_for(wire + said(said_last))
        client.reset()
        _, done = running.exchanges()
    assert done.response
    assert (body(done), len(done.response.arrivals)) == (said_first + b"\n" + said_last, 3)
    assert done.failure is None


def test_a_refusal_in_pieces_has_its_status_in_the_end(tmp_path: Path) -> None:
    """The first message is known to be one only when it is whole."""
    wire = said(json.dumps({"type": "error", "status": 429, "error": {"message": "Slow down"}}).encode())
    steps = [upgraded(), heard, send(wire[:20]), pause(0.1), send(wire[20:]), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        client.wait_for(wire)
        client.reset()
        running.stop()
        reading.catch_up(running.trace)
        _, row = exchanges.listing(running.trace)
    assert (row.status, row.error, row.state) == (429, "Slow down", "complete")


def test_several_are_asked_for_at_once_and_one_is_cancelled(tmp_path: Path) -> None:
    """Answers come in the order of the requests; what else the client says stands with the upgrade; a cancelled one has ended."""
    cancelled = [*answer("resp_1")[:2], b'{"type":"response.cancelled","response":{"id":"resp_1","status":"cancelled"}}']
    unasked = b'{"type":"codex.rate_limits","limits":[]}'
    all_said = said(unasked, *cancelled, *answer("resp_2"), *answer("resp_3"))
    steps = [upgraded(), send(said(unasked)), heard, heard, heard, heard, send(all_said[len(said(unasked)) :]), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.socket.settimeout(20)
        for number in (1, 2, 3):
            client.say(create(number))
        client.say(b'{"type":"response.cancel","response_id":"resp_1"}')
        client.wait_for(all_said)
        client.reset()
        upgrade, *three = running.exchanges()
    assert (upgrade.request.body, body(upgrade)) == (b'{"type":"response.cancel","response_id":"resp_1"}', unasked)
    assert [body(each) for each in three] == [b"\n".join(said) for said in (cancelled, answer("resp_2"), answer("resp_3"))]
    assert [each.failure for each in three] == [None] * 3


def test_a_failure_told_twice_ends_one_response(tmp_path: Path) -> None:
    """First as an error, then as the response's own last word, which is not the first word of the next."""
    broken = [*answer("resp_1")[:2], b'{"type":"error","error":{"message":"Oh."}}']
    again = b'{"type":"response.failed","response":{"id":"resp_1","status":"failed"}}'
    steps = [upgraded(), heard, heard, send(said(*broken, again, *answer("resp_2"))), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        client.say(create(2))
        client.wait_for(said(*broken, again, *answer("resp_2")))
        client.reset()
        upgrade, one, two = running.exchanges()
    assert [body(each) for each in (upgrade, one, two)] == [again, b"\n".join(broken), b"\n".join(answer("resp_2"))]


def test_requests_that_nobody_answers_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that speaks another protocol: the oldest are given up, and it is told once they are too many."""
    monkeypatch.setattr(sockets, "MOST_AWAITED", 3)
    steps = [upgraded(), *([heard] * 5), send(said(b'{"type":"ready"}')), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        for number in range(5):
            client.say(create(number))
        client.wait_for(said(b'{"type":"ready"}'))
        assert running.recorder
        assert running.recorder.open_exchanges == 3
        client.reset()
        _, *five = running.exchanges()
        assert "are awaited" in running.told[0]
    assert [each.failure is None for each in five] == [True, True, False, False, False]


def test_an_answer_without_end_is_kept_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is marked, told, and no longer holds memory; the next one is kept."""
    long = answer("resp_1", ("word ",) * 60)
    monkeypatch.setattr(sockets, "MOST_ANSWER_BYTES", len(b"\n".join(answer("resp_2"))) + 10)
    steps = [upgraded(), heard, send(said(*long)), heard, send(said(*answer("resp_2"))), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        for wanted in (long, answer("resp_2")):
            client.say(create(1))
            client.wait_for(said(*wanted))
        client.reset()
        _, first, second = running.exchanges()
        assert "too long" in running.told[0]
    assert first.failure
    assert first.failure.kind is FailureKind.INTERRUPTED
    assert b"\n".join(long).startswith(body(first))
    assert (body(second), second.failure) == (b"\n".join(answer("resp_2")), None)


def test_text_that_is_no_text_passes_and_is_kept(tmp_path: Path) -> None:
    """Bad UTF-8, JSON that is none, a ping between fragments: bytes are bytes."""
    odd = [b'{"type":"response.created","x":"\xff\xfe"}', b"\xc3\x28 not JSON", answer("resp_1")[-1]]
    fragments = PLAIN.frames(odd[0], TEXT, pieces=3)
    wire = PLAIN.frames(b"?", PING)[0].join(fragments) + said(*odd[1:])
    steps = [upgraded(), heard, send(wire), until_gone]
    with serving({PATH: steps}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(b'{"type":"response.create","input":"\xff"}')
        client.wait_for(wire)
        client.reset()
        running.stop()
        reading.catch_up(running.trace)
        _, row = exchanges.listing(running.trace)
        found = exchanges.load(running.trace, row.id)
    assert (body(found), row.state) == (b"\n".join(odd), "complete")


@pytest.mark.parametrize("bits", [9, 15])
@pytest.mark.parametrize("takes_over", [True, False])
def test_windows_as_they_were_agreed_on(tmp_path: Path, bits: int, takes_over: bool) -> None:
    """Smaller windows, and contexts that begin anew with each message, are read without being told."""
    clear, wire = answer("resp_1", ("word ",) * 50), b""
    deflater = zlib.compressobj(wbits=-bits)
    for message in clear:
        deflater = deflater if takes_over else zlib.compressobj(wbits=-bits)
        packed = (deflater.compress(message) + deflater.flush(zlib.Z_SYNC_FLUSH))[:-4]
        wire += b"\xc1" + (bytes([len(packed)]) if len(packed) < 126 else b"\x7e" + len(packed).to_bytes(2)) + packed
    agreed = f"{DEFLATE}; server_max_window_bits={bits}" + ("" if takes_over else "; server_no_context_takeover")
    with serving({PATH: [upgraded(agreed), heard, send(wire), until_gone]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url, deflates=True)
        client.say(create(1))
        client.wait_for(wire)
        client.reset()
        _, found = running.exchanges()
    assert body(found) == b"\n".join(clear)


def test_a_message_made_to_inflate_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little that becomes very much: it passes, its record ends where it goes beyond all measure, and that is told."""
    monkeypatch.setattr(frames, "MOST_INFLATED_BYTES", 8 << 20)
    monkeypatch.setattr(frames, "MOST_MESSAGE_BYTES", 1 << 20)
    packer = Packer(masks=False, deflates=True)
    wire = packer.frames(bytes(32 << 20))[0] + packer.frames(b"after")[0]
    with serving({PATH: [upgraded(DEFLATE), send(wire), until_gone]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url, deflates=True)
        client.wait_for(wire)
        client.reset()
        (found,) = running.exchanges()
    assert len(wire) < 40_000
    assert "inflate" in running.told[-1]
    assert found.failure
    assert (found.failure.kind, len(body(found)) <= 1 << 20) == (FailureKind.INTERRUPTED, True)


def test_a_client_that_does_not_read_holds_the_upstream_up(tmp_path: Path) -> None:
    """What an upstream may send ahead is what buffers hold: it waits, as it would for the client itself."""
    message, sent = said(b'{"type":"note","x":"' + b"x" * 999_900 + b'"}'), [0]

    async def flood(peer: Peer) -> None:
        for _ in range(200):
            await peer.send(message)
            sent[0] += len(message)

    with serving({PATH: [upgraded(), flood, reset]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        before = -1
        while before != sent[0]:
            before = sent[0]
            time.sleep(0.4)
        assert 0 < before < 40_000_000
        client.reset()
        assert server.hung_up.wait(10)
        (upgrade,) = running.exchanges()
    assert len(body(upgrade)) <= sockets.KEPT_BYTES


@pytest.mark.parametrize("way", ["reset", "half close"])
def test_a_client_that_dies_is_gone_for_the_upstream_too(tmp_path: Path, way: str) -> None:
    """At once, and without a close frame that nobody sent. Who closes its own side has left, as over HTTP."""
    seen = bytearray()

    async def listen(peer: Peer) -> None:
        while data := await peer.reader.read(65536):
            seen.extend(data)

    with serving({PATH: [upgraded(), listen, reset]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        if way == "half close":
            client.socket.shutdown(socket.SHUT_WR)
            assert client.wait_for_end() == b""
        else:
            client.reset()
        rows = kept(running, lambda found: len(found) == 2 and all(each.ended_ns for each in found))
        running.stop()
        states = [row.state for row in exchanges.listing(running.trace, everything=True)]
    assert bytes(seen[:1]) == b"\x81"
    assert b"\x88" not in (seen[-6:-5], seen[-8:-7])
    assert states == [State.CLIENT_ABORTED] * 2
    assert all(each.failure and each.failure.kind is FailureKind.CLIENT_LEFT for each in rows)


def test_a_client_that_lingers_behind_a_dead_upstream_holds_nothing_open(tmp_path: Path) -> None:
    """Its answer has ended when its server has, and so has the socket; it is shown no close frame."""
    part = said(*answer("resp_1")[:2])
    with serving({PATH: [upgraded(), heard, send(part), reset]}) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(create(1))
        client.wait_for(part)
        found = kept(running, lambda found: len(found) == 2 and all(each.ended_ns for each in found))
        assert client.wait_for_end() == b""
    assert [each.failure.kind for each in found if each.failure] == [FailureKind.SERVER_CUT] * 2


@pytest.mark.parametrize(("asks", "state"), [(True, State.COMPLETE), (False, State.CLIENT_ABORTED)])
def test_an_agent_that_leaves_when_all_is_answered_has_aborted_nothing(tmp_path: Path, asks: bool, state: State) -> None:
    """Codex ends every session without a close frame; a socket on which nothing was ever answered was left."""
    with (
        serving({PATH: [upgraded(), heard, send(said(*answer("resp_1"))), until_gone]}) as server,
        recording(tmp_path, server.url) as running,
    ):
        client = Client(running.url)
        if asks:
            client.say(create(1))
            client.wait_for(said(*answer("resp_1")))
        client.reset()
        assert server.hung_up.wait(10) or not asks
        kept(running, lambda found: bool(found) and all(each.ended_ns for each in found))
        running.stop()
        upgrade = exchanges.listing(running.trace, everything=True)[0]
    assert upgrade.state == state


def test_an_upstream_behind_tls_that_would_rather_speak_http2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade is HTTP/1.1's: nothing else is offered, and large frames pass through TLS both ways."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    context.set_alpn_protocols(["h2", "http/1.1"])
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    request, messages = create(1, text="long " * 60_000), answer("resp_1", ("word " * 60_000,))
    steps = [upgraded(), heard, send(said(*messages)), until_gone]
    with serving({PATH: steps}, tls=context) as server, recording(tmp_path, server.url) as running:
        client = Client(running.url)
        client.say(request)
        client.wait_for(said(*messages))
        client.reset()
        _, found = running.exchanges()
    assert (found.request.body, body(found), found.failure) == (request, b"\n".join(messages), None)
