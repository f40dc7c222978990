"""Answers and ends out of the ordinary, through the real recorder: the client fares as without it, and the record says what happened."""

import gzip
import json
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from faulty.steps import SSE, Step, chunk, cut, gzipped, head, last, pause, reset, send, split, until_gone, whole, zstandard
from faulty.upstream import serving
from recorded import ask, body_of, connect, read_all, recording, request

from storage.records import Exchange, FailureKind, Transport

EVENTS = [b'event: x\ndata: {"n":%d}\n\n' % number for number in range(6)]
STREAM: list[Step] = [head(), *(chunk(event) for event in EVENTS), last()]
BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":5}'
PATH = "/v1/messages"


def through(folder: Path, steps: Sequence[Step], **more: object) -> tuple[bytes, Exchange]:
    """One request answered by `steps`: what the client got, and what was kept."""
    with serving({PATH: steps}) as server, recording(folder, server.url) as running:
        answer = ask(running.url, PATH, BODY)
        (kept,) = running.exchanges()
        assert running.told == []
    return answer, kept


def kept_body(exchange: Exchange) -> bytes:
    assert exchange.response
    return exchange.response.body


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_stream_split_anywhere_is_the_same_stream(tmp_path: Path, size: int) -> None:
    """Whatever the writes are, the bytes are the same for the client and in the record."""
    wire = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in EVENTS) + b"0\r\n\r\n"
    answer, kept = through(tmp_path, [head(), split(wire, size)])
    assert body_of(answer) == kept_body(kept) == b"".join(EVENTS)
    assert kept.failure is None


def test_an_exchange_is_kept_whole(tmp_path: Path) -> None:
    """Head, body and times of both sides; the answer's head as sent, reason and doubled headers included."""
    headers = (("Content-Type", "text/event-stream"), ("X-One", "1"), ("x-one", "2"))
    steps = [head("299 Very Fine", headers), *STREAM[1:]]
    with serving({"/deep" + PATH: steps}) as server, recording(tmp_path, server.url + "/deep") as running:
        answer = ask(
            running.url, PATH + "?beta=true&key=sk-abcdefghijklmnop", BODY, (("X-Api-Key", "sk-ant-1234567890abcdef"), ("aCCept", "*/*"))
        )
        (kept,) = running.exchanges()
        (asked,) = server.asked
    assert answer.startswith(b"HTTP/1.1 299 Very Fine\r\nContent-Type: text/event-stream\r\nX-One: 1\r\nx-one: 2\r\n")
    lines = asked.head.split(b"\r\n")
    assert lines[0] == b"POST /deep/v1/messages?beta=true&key=sk-abcdefghijklmnop HTTP/1.1"
    assert lines[1] == b"Host: " + server.url.removeprefix("http://").encode()
    assert lines[2:4] == [b"X-Api-Key: sk-ant-1234567890abcdef", b"aCCept: */*"]
    assert (asked.body, kept.request.body) == (BODY, BODY)
    assert kept.request.url == server.url + PATH + "?beta=true&key=***"
    assert ("aCCept", "*/*") in kept.request.headers
    assert dict(kept.request.headers)["X-Api-Key"].startswith("***:")
    assert kept.response
    assert (kept.response.status, kept.transport) == (299, Transport.HTTP1)
    assert kept.sent_ns is not None
    assert kept.ended_ns is not None
    times = [kept.response.headers_at_ns, *(arrival.at_ns for arrival in kept.response.arrivals), kept.ended_ns]
    assert times == sorted(times)
    assert kept.origin.listener == running.url.removeprefix("http://")


def test_a_label_in_the_path_is_kept_and_taken_off(tmp_path: Path) -> None:
    """`/s/<label>/...` says to what run the traffic belongs; the upstream never sees it."""
    with serving({PATH: STREAM}) as server, recording(tmp_path, server.url) as running:
        ask(running.url, "/s/my%20run" + PATH, BODY)
        (kept,) = running.exchanges()
        assert [asked.target for asked in server.asked] == [PATH]
    assert kept.origin.label == "my run"
    assert kept.request.url == server.url + PATH


@pytest.mark.parametrize("pack", [gzipped, zstandard])
def test_an_encoded_stream_passes_encoded(tmp_path: Path, pack: object) -> None:
    """What is compressed stays so, for the client and in the record, piece by piece."""
    pieces = pack(EVENTS)  # type: ignore[operator]
    encoding = "gzip" if pack is gzipped else "zstd"
    answer, kept = through(
        tmp_path, [head(headers=(*SSE, ("Content-Encoding", encoding))), *(chunk(piece) for piece in pieces if piece), last()]
    )
    assert body_of(answer) == kept_body(kept) == b"".join(pieces)
    if encoding == "gzip":
        assert gzip.decompress(body_of(answer)) == b"".join(EVENTS)


def test_an_error_in_html_passes_as_it_is(tmp_path: Path) -> None:
    """The upstream's own words are not ours to change."""
    answer, kept = through(tmp_path, [whole(b"<html>\xff oops</html>", "500 Internal Server Error", "text/html")])
    assert body_of(answer) == kept_body(kept) == b"<html>\xff oops</html>"
    assert kept.response is not None
    assert kept.response.status == 500
    assert kept.failure is None


@pytest.mark.parametrize(
    ("steps", "arrived"),
    [
        pytest.param([*STREAM[:4], cut], 3, id="closed in a chunked body"),
        pytest.param([*STREAM[:4], pause(0.05), reset], 3, id="reset in a chunked body"),
        pytest.param([send(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + EVENTS[0]), cut], 1, id="shorter than its content-length"),
        pytest.param([head(framing="Connection: close"), send(EVENTS[0]), pause(0.05), reset], 1, id="reset in a body read until close"),
    ],
)
def test_an_answer_cut_by_the_upstream_keeps_what_came(tmp_path: Path, steps: list[Step], arrived: int) -> None:
    """The partial bytes, and that the server cut it."""
    answer, kept = through(tmp_path, steps)
    assert body_of(answer) == kept_body(kept) == b"".join(EVENTS[:arrived])
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.SERVER_CUT


def test_a_body_read_until_close_ends_cleanly(tmp_path: Path) -> None:
    """No length, no chunks: the close is the end, and no failure (whether it was whole is the reader's to say)."""
    answer, kept = through(tmp_path, [head(framing="Connection: close"), *(send(event) for event in EVENTS), cut])
    assert body_of(answer) == kept_body(kept) == b"".join(EVENTS)
    assert kept.failure is None


def test_an_upstream_that_hangs_up_unanswered_is_told_as_json(tmp_path: Path) -> None:
    """The client gets an error it can parse; the record has no answer, for there was none."""
    answer, kept = through(tmp_path, [cut])
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\n")
    assert json.loads(body_of(answer))["error"]["type"] == "api_error"
    assert kept.response is None
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.SERVER_CUT


def test_an_upstream_that_is_down_is_recorded(tmp_path: Path) -> None:
    """Refused connections are exchanges too."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with recording(tmp_path, f"http://127.0.0.1:{port}") as running:
        answer = ask(running.url, "/v1/chat/completions", BODY)
        (kept,) = running.exchanges()
    assert json.loads(body_of(answer))["error"]["code"] == "upstream_unreachable"
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.UNREACHABLE
    assert kept.request.body == BODY
    assert kept.sent_ns is None


def test_http2_by_prior_knowledge_is_refused(tmp_path: Path) -> None:
    """Clearly, in HTTP/1.1; the upstream hears nothing and nothing is recorded."""
    with serving({PATH: STREAM}) as server, recording(tmp_path, server.url) as running:
        with connect(running.url) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
            answer = read_all(connection)
        assert running.exchanges() == []
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert "HTTP/2" in json.loads(body_of(answer))["error"]["message"]


def test_a_request_that_cannot_be_passed_on_says_so(tmp_path: Path) -> None:
    """The upstream was never asked, and is not blamed."""
    with serving({PATH: STREAM}) as server, recording(tmp_path, server.url) as running, connect(running.url) as connection:
        connection.sendall(b"not a request line\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body_of(answer))["error"]["code"] == "bad_request"


def test_a_client_still_uploading_gets_to_read_the_refusal(tmp_path: Path) -> None:
    """Our side alone is closed: a reset would throw the answer away under a client that has not finished."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with recording(tmp_path, f"http://127.0.0.1:{port}") as running, connect(running.url) as connection:
        connection.sendall(request(PATH, b"x" * 300_000)[:200_000])
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65536)
        connection.sendall(b"x" * 1000)
        answer += read_all(connection)
    assert b"api_error" in answer


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
def test_a_client_that_leaves_in_mid_stream_has_left(tmp_path: Path, how: str) -> None:
    """However it leaves: the bytes that came are kept, and the upstream is hung up on."""
    with serving({PATH: [*STREAM[:3], until_gone]}) as server, recording(tmp_path, server.url) as running:
        with connect(running.url) as connection:
            connection.sendall(request(PATH, BODY))
            got = b""
            while EVENTS[1] not in got:
                got += connection.recv(65536)
            if how == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if how == "half-close":
                connection.shutdown(socket.SHUT_WR)
                read_all(connection)
        assert server.hung_up.wait(10)
        (kept,) = running.exchanges()
    assert kept_body(kept) == b"".join(EVENTS[:2])
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.CLIENT_LEFT


def test_a_client_that_leaves_in_mid_upload_has_left(tmp_path: Path) -> None:
    """What had been sent of the request is kept; the upload had gone on at once."""
    with serving({PATH: STREAM}) as server, recording(tmp_path, server.url) as running:
        with connect(running.url) as connection:
            connection.sendall(request(PATH, BODY)[:-20])
            assert server.got_data.wait(10)
        assert server.hung_up.wait(10)
        (kept,) = running.exchanges()
    assert kept.request.body == BODY[:-20]
    assert kept.sent_ns is None
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.CLIENT_LEFT


def test_an_answer_may_come_before_the_upload_has_ended(tmp_path: Path) -> None:
    """The refusal and the whole upload are one exchange."""
    refusal = [whole(b'{"error":{"message":"too large"}}', "413 Content Too Large")]
    with serving({PATH: [*refusal, until_gone]}, early=[PATH]) as server, recording(tmp_path, server.url) as running:
        with connect(running.url) as connection:
            connection.sendall(request(PATH, BODY)[:-20])
            got = b""
            while b"too large" not in got:
                got += connection.recv(65536)
            connection.sendall(BODY[-20:])
        (kept,) = running.exchanges()
    assert kept.response is not None
    assert kept.response.status == 413
    assert kept.request.body in (BODY, BODY[:-20])


def test_an_upgraded_connection_passes_raw(tmp_path: Path) -> None:
    """After 101 to something that is no WebSocket nothing is understood or kept but the upgrade itself."""

    async def echo(peer: object) -> None:
        while data := await peer.reader.read(100):  # type: ignore[attr-defined]
            await peer.send(data[::-1])  # type: ignore[attr-defined]

    upgrade = send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n")
    with serving({"/v1/responses": [upgrade, echo]}) as server, recording(tmp_path, server.url) as running:
        with connect(running.url) as connection:
            connection.sendall(b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n")
            assert connection.recv(65536).endswith(b"\r\n\r\n")
            for message in (b"\x81\x05hello", b"\xff\x00\x01", b"z" * 90):
                connection.sendall(message)
                assert connection.recv(65536) == message[::-1]
        (kept,) = running.exchanges()
    assert kept.response is not None
    assert (kept.response.status, kept.response.body, kept.failure) == (101, b"", None)


def test_stopping_interrupts_what_does_not_end(tmp_path: Path) -> None:
    """Exchanges in flight get their time; what is left is kept as interrupted by the recorder."""
    with (
        serving({PATH: [*STREAM[:3], until_gone]}) as server,
        recording(tmp_path, server.url, drain_s=0.2) as running,
        connect(running.url) as client,
    ):
        client.sendall(request(PATH, BODY))
        got = b""
        while EVENTS[1] not in got:
            got += client.recv(65536)
        (kept,) = running.exchanges()
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.INTERRUPTED
    assert kept_body(kept) == b"".join(EVENTS[:2])


def test_stopping_lets_an_exchange_end(tmp_path: Path) -> None:
    """A stream that ends within the time to drain is whole, and nobody new is let in meanwhile."""
    with serving({PATH: [*STREAM[:2], pause(0.4), *STREAM[2:]]}) as server, recording(tmp_path, server.url, drain_s=10) as running:
        with connect(running.url) as client:
            client.sendall(request(PATH, BODY))
            client.recv(10)
            (kept,) = running.exchanges()
        with pytest.raises(OSError):
            connect(running.url)
    assert (kept.failure, kept_body(kept)) == (None, b"".join(EVENTS))


def test_silence_beyond_the_limit_is_a_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorder's own time limit is not the client's leaving."""
    monkeypatch.setattr("tracer.proxy.SILENCE_LIMIT_S", 1)
    _, kept = through(tmp_path, [*STREAM[:2], until_gone])
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.TIMED_OUT
