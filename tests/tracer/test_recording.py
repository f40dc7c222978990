"""One recorder from start to end: several upstreams, TLS, what it says when it cannot record, and what it refuses."""

import socket
import ssl
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from certificates import certificate
from faulty.steps import chunk, head, last, pause, whole
from faulty.upstream import serving
from recorded import ask, body_of, recording

from storage.errors import PlayheadError
from storage.records import FailureKind
from storage.writer import Writer
from tracer.recording import Troubles

PATH = "/v1/messages"
STREAM = [head(), chunk(b"data: 1\n\n"), chunk(b"data: 2\n\n"), last()]


def test_each_upstream_has_its_listener(tmp_path: Path) -> None:
    """What is asked of one goes to its own upstream, with its own base path."""
    with (
        serving({"/a/x": [whole(b"a")]}) as first,
        serving({"/x": [whole(b"b")]}) as second,
        recording(tmp_path, first.url + "/a", second.url) as running,
    ):
        assert len(running.urls) == 2
        assert [body_of(ask(url, "/x", b"{}")) for url in running.urls] == [b"a", b"b"]
        kept = running.exchanges()
    assert [exchange.request.url for exchange in kept] == [first.url + "/x", second.url + "/x"]
    assert [exchange.origin.listener for exchange in kept] == [url.removeprefix("http://") for url in running.urls]


def test_a_connection_is_kept_alive_and_named(tmp_path: Path) -> None:
    """Exchanges of one connection carry its name, those of another another."""
    with serving({PATH: [whole(b"1")]}) as upstream, recording(tmp_path, upstream.url) as running:
        client = HTTPConnection("127.0.0.1", int(running.url.rpartition(":")[2]), timeout=20)
        for _ in range(2):
            client.request("POST", PATH, b"{}")
            assert client.getresponse().read() == b"1"
        client.close()
        ask(running.url, PATH, b"{}")
        names = [exchange.origin.connection for exchange in running.exchanges()]
    assert names[0] == names[1] != names[2]


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    """In one line, with a hint."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            recording(tmp_path, "http://127.0.0.1:9", port=port) as running,
            pytest.raises(PlayheadError, match="address already in use") as caught,
        ):
            running.stop()
        running.failure = None
    assert caught.value.hint


@pytest.mark.parametrize("broken", ["begin", "arrival", "request_piece", "response_head", "finish", "request_complete"])
def test_what_cannot_be_recorded_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Whatever breaks in the record, the client gets every byte, and it is said loudly."""

    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError(f"no {broken}")

    monkeypatch.setattr(Writer, broken, breaks)
    with serving({PATH: STREAM}) as upstream, recording(tmp_path, upstream.url) as running:
        assert body_of(ask(running.url, PATH, b"{}")) == b"data: 1\n\ndata: 2\n\n"
        running.stop()
    assert running.told == [f"NOT RECORDED: RuntimeError: no {broken}"]


def test_the_strict_would_rather_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `stops_when_broken` the first trouble ends the recorder with an error."""

    def breaks(*_: object) -> None:
        raise RuntimeError("no disk")

    monkeypatch.setattr(Writer, "arrival", breaks)
    with serving({PATH: STREAM}) as upstream, recording(tmp_path, upstream.url, stops_when_broken=True) as running:
        ask(running.url, PATH, b"{}")
        assert running._thread
        running._thread.join(20)
        assert not running._thread.is_alive()
    assert isinstance(running.failure, PlayheadError)
    assert "no disk" in str(running.failure)


def test_a_secret_in_a_trouble_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors quote what they were given."""

    def breaks(*_: object) -> None:
        raise RuntimeError("cannot store sk-ant-api03-abcdefghijklmnop")

    monkeypatch.setattr(Writer, "begin", breaks)
    with serving({PATH: STREAM}) as upstream, recording(tmp_path, upstream.url) as running:
        ask(running.url, PATH, b"{}")
        running.stop()
    assert running.told == ["NOT RECORDED: RuntimeError: cannot store ***"]


async def test_the_same_trouble_is_told_once() -> None:
    """Until something else happens; the first is remembered."""
    told: list[str] = []
    troubles = Troubles(told.append)
    for text in ("a", "a", "b", "a"):
        troubles(text)
    assert told == [f"NOT RECORDED: {text}" for text in "aba"]
    assert troubles.first == "a"


@pytest.fixture
def anyio_backend() -> str:
    """Asyncio is what the recorder runs on."""
    return "asyncio"


pytestmark = pytest.mark.anyio


class Secure(BaseHTTPRequestHandler):
    """Answers any POST."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"secure")

    def log_message(self, *args: object) -> None:
        """Says nothing."""


@pytest.mark.parametrize("is_trusted", [True, False])
def test_an_upstream_behind_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_trusted: bool) -> None:
    """One whose authority `SSL_CERT_FILE` names is spoken to; a stranger is not, and nothing of the request reaches it."""
    pem = certificate(tmp_path)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    else:
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with HTTPServer(("127.0.0.1", 0), Secure) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with recording(tmp_path, f"https://127.0.0.1:{server.server_port}") as running:
            answer = ask(running.url, PATH, b"{}")
            (kept,) = running.exchanges()
        server.shutdown()
    if is_trusted:
        assert body_of(answer) == b"secure"
        assert kept.failure is None
    else:
        assert answer.startswith(b"HTTP/1.1 502")
        assert kept.failure is not None
        assert kept.failure.kind is FailureKind.UNREACHABLE
        assert "certificate" in kept.failure.message.lower()


def test_a_drain_ends_when_nothing_is_left(tmp_path: Path) -> None:
    """An idle connection that is kept alive does not hold the recorder up."""
    with serving({PATH: [pause(0.01), whole(b"1")]}) as upstream, recording(tmp_path, upstream.url, drain_s=60) as running:
        client = HTTPConnection("127.0.0.1", int(running.url.rpartition(":")[2]), timeout=20)
        client.request("POST", PATH, b"{}")
        assert client.getresponse().read() == b"1"
        assert len(running.exchanges()) == 1
        client.close()
