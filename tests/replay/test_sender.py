"""What is sent is what was given, what is heard carries the stamp of the read that completed it; no figure here depends on speed."""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from golden_server import GoldenServer, Script, Visitor, chunked, serving

from replay import sender, stamping
from replay.sender import Heard, Lane
from replay.stamping import Read, StampedConnection
from storage.errors import TargetError
from storage.records import FailureKind, Request
from tracer.clock import Clock

EVENTS = tuple(b"data: token %d\n\n" % n for n in range(6))


def request(url: str, body: bytes = b'{"model":"m"}') -> Request:
    headers = (("Content-Type", "application/json"), ("X-App", "cli"), ("x-two", "1"), ("x-two", "2"))
    return Request(method="POST", url=f"{url}/v1/messages?beta=true&x=%20", headers=headers, body=body)


async def ask(server: GoldenServer, *, body: bytes = b'{"model":"m"}', silence_s: float = 10) -> Heard:
    lane = Lane(server.url)
    try:
        return await sender.send(lane, await lane.take(), sender.message(request(server.url, body)), silence_s=silence_s)
    finally:
        lane.close()
        await asyncio.sleep(0)


def answer(script: Script, *, silence_s: float = 10) -> Heard:
    with serving(script) as server:
        return asyncio.run(ask(server, silence_s=silence_s))


def test_the_request_arrives_as_given() -> None:
    """Path and query to the byte, headers in order, case and number; host first and length last; the body as it is."""
    body = bytes(range(256)) * 2000
    with serving(chunked(*EVENTS)) as server:
        heard = asyncio.run(ask(server, body=body))
        ((head, came),) = server.asked
    assert came == body
    assert head.split(b"\r\n") == [
        b"POST /v1/messages?beta=true&x=%20 HTTP/1.1",
        b"Host: 127.0.0.1:%d" % server.port,
        b"Content-Type: application/json",
        b"X-App: cli",
        b"x-two: 1",
        b"x-two: 2",
        b"Content-Length: 512000",
    ]
    assert heard.status == 200
    assert heard.sent_ns is not None
    assert heard.start_ns <= heard.sent_ns <= heard.end_ns


def test_every_piece_carries_a_stamp_after_it_was_sent_and_before_the_next_was() -> None:
    """The server waits between its events, on the same monotonic clock: arrivals and sends interleave."""
    with serving(chunked(*EVENTS, pause_s=0.03)) as server:
        heard = asyncio.run(ask(server))
        sent = server.visitors[0].sent_ns
    assert [piece.data for piece in heard.pieces] == list(EVENTS)
    stamps = [piece.at_ns for piece in heard.pieces]
    assert stamps == sorted(stamps)
    assert sent[0] <= heard.head_ns
    for came, left in zip(stamps, sent[1:], strict=False):
        assert left <= came
    assert heard.end_ns >= sent[-1]


class Pieces:
    """Stands in for a connection whose raw reads are known."""

    def __init__(self, *reads: Read) -> None:
        self._reads = list(reads)
        self.sent_ns: int | None = 5
        self.error: Exception | None = None
        self.was_closed = False
        self.writes = 0

    def write(self, data: bytes) -> None:
        self.wrote = data
        self.writes += 1

    async def read(self, silence_s: float) -> Read:
        return self._reads.pop(0)

    def abort(self) -> None:
        self.was_closed = True


def hear(*reads: Read) -> tuple[Heard, Pieces, Lane]:
    connection, lane = Pieces(*reads), Lane("http://127.0.0.1:1")
    return asyncio.run(sender.send(lane, connection, sender.message(request("http://127.0.0.1:1")))), connection, lane  # type: ignore[arg-type]


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_piece_has_the_stamp_of_the_read_that_completed_it() -> None:
    """Framing cut anywhere: several chunks in one read are one piece, a chunk in two reads is two, framing alone is none."""
    heard, connection, lane = hear(
        Read(10, HEAD + b"3\r\nabc\r\n2\r\nde\r\n"),
        Read(20, b"4\r"),
        Read(30, b"\nfg"),
        Read(40, b"hi\r\n0\r\n"),
        Read(50, b"\r\n"),
    )
    assert heard.pieces == (Read(10, b"abcde"), Read(30, b"fg"), Read(40, b"hi"))
    assert (heard.head_ns, heard.end_ns, heard.failure, heard.sent_ns) == (10, 50, None, 5)
    assert not connection.was_closed
    assert lane._idle == [connection]


@pytest.mark.parametrize(
    ("reads", "body", "reused"),
    [
        ((Read(10, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),), b"abc", True),
        ((Read(10, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"),), b"abc", False),
        ((Read(10, b"HTTP/1.1 200 OK\r\n\r\nabc"), Read(20, b"de"), Read(30, b"")), b"abcde", False),
        ((Read(10, b"HTTP/1.1 103 Early Hints\r\n\r\n"), Read(20, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")), b"", True),
        ((Read(10, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naUNASKED"),), b"a", False),
    ],
    ids=["length", "close", "until close", "early hints", "more than promised"],
)
def test_answers_end_as_http_says_and_connections_are_used_again_only_when_clean(
    reads: tuple[Read, ...], body: bytes, reused: bool
) -> None:
    """Each way that HTTP/1.1 knows to end a body."""
    heard, connection, lane = hear(*reads)
    assert b"".join(piece.data for piece in heard.pieces) == body
    assert heard.failure is None
    assert bool(lane._idle) is reused
    assert connection.was_closed is not reused


@pytest.mark.parametrize(
    ("reads", "kept"),
    [
        ((Read(10, b""),), b""),
        ((Read(10, HEAD + b"3\r\nabc\r\n"), Read(20, b"")), b"abc"),
        ((Read(10, HEAD + b"3\r\nabc\r\nnot a size\r\n"),), b"abc"),
        ((Read(10, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"), Read(20, b"")), b"abc"),
        ((Read(10, b"SSH-2.0-OpenSSH\r\n\r\n"),), b""),
    ],
    ids=["at once", "in a chunk", "bad framing", "short", "not http"],
)
def test_a_cut_answer_is_a_failure_that_keeps_what_came(reads: tuple[Read, ...], kept: bytes) -> None:
    """Never an exception, and no byte before the cut is lost."""
    heard, connection, lane = hear(*reads)
    assert heard.failure is not None
    assert heard.failure[0] == FailureKind.SERVER_CUT
    assert b"".join(piece.data for piece in heard.pieces) == kept
    assert connection.was_closed
    assert lane._idle == []


def test_a_reset_is_told_in_words() -> None:
    """The kernel's word for it stands in the failure."""

    def reset(visitor: Visitor) -> None:
        visitor.say(HEAD + b"3\r\nabc\r\n")
        time.sleep(0.05)
        visitor.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        visitor.socket.close()

    heard = answer(reset)
    assert heard.failure is not None
    assert "reset" in heard.failure[1].lower()
    assert [piece.data for piece in heard.pieces] == [b"abc"]


def test_silence_is_given_up_after_its_time() -> None:
    """A target that never answers ends as timed out."""
    heard = answer(lambda visitor: time.sleep(0.5), silence_s=0.05)
    assert heard.failure is not None
    assert heard.failure[0] == FailureKind.TIMED_OUT
    assert heard.status is None


def test_a_stopped_replay_keeps_what_had_come() -> None:
    """Cancelling gives the partial answer, marked as interrupted, and closes the connection."""

    async def stop(server: GoldenServer) -> Heard:
        lane = Lane(server.url)
        task = asyncio.ensure_future(sender.send(lane, await lane.take(), sender.message(request(server.url))))
        while not server.visitors or len(server.visitors[0].sent_ns) < 2:  # noqa: ASYNC110 - another thread
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(sender.Cut) as cut:
            await task
        await asyncio.sleep(0)
        return cut.value.heard

    with serving(lambda visitor: (visitor.say(HEAD + b"3\r\nabc\r\n"), visitor.say(b""), time.sleep(0.2))[-1]) as server:
        heard = asyncio.run(stop(server))
    assert heard.failure == (FailureKind.INTERRUPTED, "the replay was stopped")
    assert [piece.data for piece in heard.pieces] == [b"abc"]


def with_lane[T](server: GoldenServer, act: Callable[[Lane], Awaitable[T]]) -> T:
    async def main() -> T:
        lane = Lane(server.url)
        try:
            return await act(lane)
        finally:
            lane.close()
            await asyncio.sleep(0.01)

    return asyncio.run(main())


def test_a_lane_uses_its_connection_again_and_opens_one_for_each_thread_at_a_time() -> None:
    """Three turns in a row on one connection; two at once on two."""

    async def act(lane: Lane) -> None:
        await sender.warm([lane])
        for _ in range(3):
            await sender.send(lane, await lane.take(), sender.message(request(server.url)))
        one, other = await lane.take(), await lane.take()
        await asyncio.gather(*[sender.send(lane, c, sender.message(request(server.url))) for c in (one, other)])

    with serving(chunked(*EVENTS)) as server:
        with_lane(server, act)
        assert len(server.asked) == 5
        assert len(server.visitors) == 2


def test_a_connection_that_was_idle_for_long_or_closed_by_the_server_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request sent into a closing connection is lost."""

    async def act(lane: Lane) -> None:
        await sender.send(lane, await lane.take(), sender.message(request(server.url)))
        monkeypatch.setattr(sender, "IDLE_NS", 0)
        lane.give_back(await lane.take())
        monkeypatch.undo()
        while len(server.visitors) < 2:  # noqa: ASYNC110 - another thread
            await asyncio.sleep(0.005)
        server.visitors[1].socket.shutdown(socket.SHUT_RDWR)
        await asyncio.sleep(0.05)
        await sender.send(lane, await lane.take(), sender.message(request(server.url)))

    with serving(chunked(*EVENTS)) as server:
        with_lane(server, act)
        assert len(server.visitors) == 3


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_an_unreachable_target_is_one_clear_line_before_anything_is_sent() -> None:
    """With a hint; and for a turn, a failure of its kind."""
    with pytest.raises(TargetError, match="cannot be reached") as wrong:
        asyncio.run(sender.warm([Lane(f"http://127.0.0.1:{closed_port()}")]))
    assert wrong.value.hint
    assert sender.unreached(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")).failure == (
        FailureKind.UNREACHABLE,
        "connection refused",
    )
    assert sender.unreached(TimeoutError()).failure == (FailureKind.TIMED_OUT, "no answer in time")
    assert sender.describe(ValueError()) == "ValueError"
    assert sender.describe(socket.gaierror(-2, "Name or service not known")) == "Name or service not known"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody has signed, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "golden")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(hours=1), now + timedelta(hours=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signed = made.sign(key, hashes.SHA256())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "golden.pem"
    path.write_bytes(key.private_bytes(*form) + signed.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def over_tls(certificate: Path) -> ssl.SSLContext:
    """The server's side of TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_a_trusted_target_is_asked_over_tls(certificate: Path, over_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stamps and bytes as without."""
    monkeypatch.setattr(sender, "tls_context", lambda: ssl.create_default_context(cafile=certificate))
    with serving(chunked(*EVENTS, pause_s=0.01), over_tls) as server:
        heard = asyncio.run(ask(server))
    assert heard.failure is None
    assert b"".join(piece.data for piece in heard.pieces) == b"".join(EVENTS)


def test_tls_that_is_not_trusted_is_told_as_such(over_tls: ssl.SSLContext) -> None:
    """The one context of the program trusts what the system trusts, and speaks HTTP/1.1."""
    assert sender.tls_context() is sender.tls_context()
    with serving(chunked(*EVENTS), over_tls) as server:
        lane = Lane(server.url)
        with pytest.raises(TargetError, match=r"its certificate is not trusted \(self.signed certificate"):
            asyncio.run(sender.warm([lane]))


def test_a_target_that_speaks_no_tls_is_refused_in_words() -> None:
    """https where http was meant."""
    with serving(lambda visitor: visitor.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        lane = Lane(server.url.replace("http:", "https:"))
        with pytest.raises(TargetError, match="cannot be reached"):
            asyncio.run(sender.warm([lane]))


def test_what_was_heard_becomes_an_exchange_with_times_since_its_start() -> None:
    """The same assembler as the recorder's."""
    clock = Clock()
    heard = Heard(
        start_ns=1000,
        sent_ns=1010,
        end_ns=1500,
        status=200,
        headers=(("a", "b"),),
        head_ns=1100,
        pieces=(Read(1200, b"x"), Read(1300, b"y")),
    )
    made = sender.exchange(request("http://t"), heard, clock)
    assert made.started_ns == clock.unix_ns(1000)
    assert made.response is not None
    assert (made.sent_ns, made.ended_ns, made.response.headers_at_ns) == (10, 500, 100)
    assert [(a.at_ns, a.data) for a in made.response.arrivals] == [(200, b"x"), (300, b"y")]
    assert made.request.body == b'{"model":"m"}'
    lost = sender.exchange(request("http://t"), sender.unreached(OSError("gone")), clock)
    assert (lost.response, lost.sent_ns, lost.ended_ns) == (None, None, 0)
    assert lost.failure is not None
    assert lost.failure.kind == FailureKind.UNREACHABLE


def test_writing_is_over_when_the_kernel_has_taken_the_last_byte() -> None:
    """A reader that takes its time delays `sent_ns`, not the start."""

    async def act() -> tuple[int | None, int | None]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            connection = await stamping.connect("127.0.0.1", listening.getsockname()[1], None, 5)
            client, _ = listening.accept()
            with client:
                connection.write(b"x" * 16_000_000)
                before = connection.sent_ns
                left = 16_000_000
                while left:
                    await asyncio.sleep(0)
                    left -= len(client.recv(1_000_000, socket.MSG_DONTWAIT) if await readable(client) else b"")
                for _ in range(100):
                    await asyncio.sleep(0.001)
                    if connection.sent_ns is not None:
                        break
                connection.abort()
                await asyncio.sleep(0.01)
            return before, connection.sent_ns

    async def readable(client: socket.socket) -> bool:
        try:
            return bool(client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            await asyncio.sleep(0.001)
            return False

    before, after = asyncio.run(act())
    assert before is None
    assert after is not None


def test_a_connection_that_was_never_opened_is_not_open() -> None:
    """Closing it does nothing."""
    connection = StampedConnection()
    assert not connection.is_open
    connection.abort()
