"""Everything that is relied on inside mitmproxy 12.3: that it is there, that each guard is needed, and that it mends what it is for.

A new release fails here, loudly, before it loses anybody's stream. When a test says that a guard is not needed any more, take it away.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from faulty.steps import chunk, cut, head, last, send, until_gone, whole
from faulty.upstream import serving
from mitmproxy import connection, http, options
from mitmproxy.addons import next_layer, proxyserver, tlsconfig
from mitmproxy.proxy import commands, context, server
from mitmproxy.proxy.layers.http import HttpStream, _base, _events, _http1
from recorded import ask, body_of, connect, recording, request

from storage.records import FailureKind, Transport
from tracer import guards
from tracer.guards import connections, ends, framing, refusals

PATH = "/v1/messages"
EVENTS = [b"data: %d\n\n" % number for number in range(3)]
SHORT_S = 1.0
"""How long is waited for what must not come."""


def without(monkeypatch: pytest.MonkeyPatch, guard: Callable[[], Any]) -> None:
    """All guards but one."""
    monkeypatch.setattr(guards, "GUARDS", tuple(each for each in guards.GUARDS if each is not guard))


def hangs(url: str) -> bool:
    """Whether a client that asks does not get its answer to the end."""
    with connect(url) as connection:
        connection.sendall(request(PATH, b"{}"))
        connection.settimeout(SHORT_S)
        try:
            while connection.recv(65536):
                pass
        except TimeoutError:
            return True
        return False


def test_the_version_is_the_one_that_was_checked() -> None:
    """The guards were written against this release's source."""
    assert version("mitmproxy").startswith(guards.CHECKED_VERSION + ".")


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (_http1, ["make_body_reader", "make_error_response"]),
        (_http1.Http1Connection, ["read_body", "mark_done"]),
        (_http1.Http1Server, ["send", "read_headers"]),
        (_http1.Http1Client, ["send", "read_headers"]),
        (HttpStream, ["state_wait_for_request_headers", "state_errored"]),
        (HttpStream, ["handle_protocol_error", "state_stream_response_body", "state_stream_request_body"]),
        (server.ConnectionHandler, ["__init__", "on_timeout", "handle_connection"]),
        (proxyserver.Proxyserver, ["active_connections"]),
        (proxyserver.Servers, ["update"]),
        (_base, ["ReceiveHttp"]),
        (_events, ["ResponseTrailers", "RequestTrailers", "ResponseProtocolError", "RequestProtocolError", "RequestData", "ErrorCode"]),
        (_events.ErrorCode, ["CONNECT_FAILED"]),
    ],
)
def test_what_is_patched_is_there(owner: object, names: list[str]) -> None:
    """Under the names that the guards replace or call."""
    assert [name for name in names if not hasattr(owner, name)] == []


def test_the_addons_that_are_loaded_are_there() -> None:
    """The recorder loads these three alone."""
    assert [proxyserver.Proxyserver, next_layer.NextLayer, tlsconfig.TlsConfig]
    known = options.Options().keys()
    assert {"mode", "listen_host", "confdir", "tcp_timeout", "websocket", "http3", "ssl_verify_upstream_trusted_ca"} <= set(known)


def test_guards_can_be_taken_away_again() -> None:
    """Nothing is left behind when a recorder ends."""
    before = (_http1.Http1Server.send, _http1.make_body_reader, HttpStream.handle_protocol_error, server.ConnectionHandler.__init__)
    undo = guards.install()
    assert _http1.Http1Server.send is not before[0]
    undo()
    after = (_http1.Http1Server.send, _http1.make_body_reader, HttpStream.handle_protocol_error, server.ConnectionHandler.__init__)
    assert after == before


# ---- trailers -------------------------------------------------------------------------------------------------------

TRAILED = [head(), *(chunk(event) for event in EVENTS), last(b"X-Cost: 0.01\r\nx-more: 2\r\n")]


def test_trailers_of_an_answer_go_on(tmp_path: Path) -> None:
    """As they came, behind the last chunk; the exchange is whole."""
    with serving({PATH: TRAILED}) as upstream, recording(tmp_path, upstream.url) as running:
        answer = ask(running.url, PATH, b"{}")
        (kept,) = running.exchanges()
    assert answer.endswith(b"0\r\nX-Cost: 0.01\r\nx-more: 2\r\n\r\n")
    assert kept.response is not None
    assert (kept.response.body, kept.failure) == (b"".join(EVENTS), None)


def test_trailers_of_a_request_go_on(tmp_path: Path) -> None:
    """Uploads have them too."""
    asking = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    asking += b"2\r\n{}\r\n0\r\nX-Sum: 9\r\n\r\n"
    with serving({PATH: [whole(b"{}")]}) as upstream, recording(tmp_path, upstream.url) as running:
        with connect(running.url) as client:
            client.sendall(asking + b"2\r\n{}\r\n0\r\nX-Sum: 9\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
        (asked,) = upstream.asked
        (kept,) = running.exchanges()
    assert (asked.body, asked.trailers, kept.request.body) == (b"{}", b"X-Sum: 9\r\n", b"{}")


def test_trailers_need_their_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mitmproxy by itself leaves the client waiting for ever."""
    without(monkeypatch, framing.pass_trailers)
    with serving({PATH: TRAILED}) as upstream, recording(tmp_path, upstream.url, drain_s=0.1) as running:
        assert hangs(running.url)


# ---- informational heads --------------------------------------------------------------------------------------------

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n"
HINTED = [send(HINTS + b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 1"), send(b"02 Processing\r\n\r\n"), whole(b'{"fine":1}')]


def test_informational_heads_are_no_answer(tmp_path: Path) -> None:
    """However many there are and however they are cut, the final head is the answer."""
    with serving({PATH: HINTED}) as upstream, recording(tmp_path, upstream.url) as running:
        answer = ask(running.url, PATH, b"{}")
        (kept,) = running.exchanges()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert body_of(answer) == b'{"fine":1}'
    assert kept.response is not None
    assert kept.response.status == 200


def test_informational_heads_need_their_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mitmproxy by itself takes the first head for the answer."""
    without(monkeypatch, framing.drop_informational)
    with serving({PATH: HINTED}) as upstream, recording(tmp_path, upstream.url, drain_s=0.1) as running, connect(running.url) as client:
        client.sendall(request(PATH, b"{}"))
        assert client.recv(65536).startswith(b"HTTP/1.1 103")


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_errors_need_their_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mitmproxy by itself answers an agent in HTML."""
    without(monkeypatch, refusals.refuse_in_json)
    with serving({PATH: [cut]}) as upstream, recording(tmp_path, upstream.url) as running:
        assert b"text/html" in ask(running.url, PATH, b"{}")


def test_a_request_that_is_none_is_refused_in_json(tmp_path: Path) -> None:
    """Bytes that are no HTTP never become an exchange, and the client is told."""
    with serving({}) as upstream, recording(tmp_path, upstream.url) as running:
        with connect(running.url) as client:
            client.sendall(b"POST /v1/messages HTTP/9\r\n\r\n")
            answer = client.recv(65536)
        assert running.exchanges() == []
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json")
    assert "Bad HTTP request line" in json.loads(body_of(answer))["error"]["message"]


# ---- who cut it -----------------------------------------------------------------------------------------------------


def test_who_cut_needs_its_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By states alone an upstream that hangs up unanswered looks as if it had never been reached."""
    without(monkeypatch, ends.note_who_cut)
    with serving({PATH: [cut]}) as upstream, recording(tmp_path, upstream.url) as running:
        ask(running.url, PATH, b"{}")
        (kept,) = running.exchanges()
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.UNREACHABLE


def test_time_limits_need_their_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself mitmproxy's time limit looks like a client that left."""
    without(monkeypatch, ends.note_timeouts)
    monkeypatch.setattr("tracer.proxy.SILENCE_LIMIT_S", 1)
    with serving({PATH: [head(), chunk(EVENTS[0]), until_gone]}) as upstream, recording(tmp_path, upstream.url) as running:
        ask(running.url, PATH, b"{}")
        (kept,) = running.exchanges()
    assert kept.failure is not None
    assert kept.failure.kind is FailureKind.CLIENT_LEFT


# ---- sockets --------------------------------------------------------------------------------------------------------


def test_a_connection_given_up_while_it_waits_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """mitmproxy's own code leaves by an exception there, without a close."""

    async def given_up(self: object, connection: object) -> None:
        raise asyncio.CancelledError

    async def closed() -> tuple[bool, int]:
        listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        transports = {"it": server.ConnectionIO(writer=writer)}
        with pytest.raises(asyncio.CancelledError):
            await server.ConnectionHandler.handle_connection(SimpleNamespace(transports=transports), "it")  # type: ignore[arg-type]
        listener.close()
        await asyncio.sleep(0)
        return writer.is_closing(), len(transports)

    monkeypatch.setattr(server.ConnectionHandler, "handle_connection", given_up)
    undo = guards.install([connections.close_always])
    try:
        assert asyncio.run(closed()) == (True, 0)
    finally:
        undo()


# ---- framing --------------------------------------------------------------------------------------------------------


def framed(pieces: list[bytes]) -> bytes:
    """What mitmproxy's HTTP/1 writer makes of the pieces of a chunked answer."""
    client = connection.Client(peername=("127.0.0.1", 1), sockname=("127.0.0.1", 2), state=connection.ConnectionState.OPEN)
    writer = _http1.Http1Server(context.Context(client, options.Options()))
    writer.response = http.Response.make(200, b"", {"Transfer-Encoding": "chunked"})
    sent = [command for piece in pieces for command in writer.send(_events.ResponseData(1, piece))]
    return b"".join(command.data for command in sent if isinstance(command, commands.SendData))


def test_an_empty_piece_never_ends_a_message() -> None:
    """With the guard an empty piece is nothing; without it, it is the chunk that ends the client's stream."""
    assert framed([b"ab", b"", b"c"]) == b"2\r\nab\r\n0\r\n\r\n1\r\nc\r\n"
    undo = guards.install([framing.frame_once])
    try:
        assert framed([b"ab", b"", b"c"]) == b"2\r\nab\r\n1\r\nc\r\n"
    finally:
        undo()


def test_a_framing_is_looked_up_for_each_answer(tmp_path: Path) -> None:
    """A connection that is kept alive carries answers of either framing."""
    answers = {"/a": [*TRAILED[:-1], last()], "/b": [whole(b"bb")]}
    with serving(answers) as upstream, recording(tmp_path, upstream.url) as running, httpx.Client(base_url=running.url) as client:
        found = [client.get(path).content for path in ("/a", "/b", "/a", "/b")]
    assert found == [b"".join(EVENTS), b"bb"] * 2


# ---- HTTP/2 clients -------------------------------------------------------------------------------------------------


class SpeaksHttp2(ssl.SSLContext):
    """Offers HTTP/2 and nothing else; httpx would offer HTTP/1.1 first."""

    def set_alpn_protocols(self, alpn_protocols: object) -> None:
        super().set_alpn_protocols(["h2"])


async def ask_side_by_side(url: str, count: int) -> None:
    """So many streams on one HTTP/2 connection, each given up after a while."""
    context = SpeaksHttp2(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def one(client: httpx.AsyncClient) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(SHORT_S), client.stream("POST", url, content=b"{}") as answer:
                assert answer.http_version == "HTTP/2"
                async for _ in answer.aiter_raw():
                    pass

    async with httpx.AsyncClient(http2=True, http1=False, verify=context, timeout=10) as client:
        await asyncio.gather(*[one(client) for _ in range(count)])


def streams_begun(folder: Path) -> int:
    """How many of eight HTTP/2 streams, none of which ends, reached the upstream."""
    endless = [head(), chunk(EVENTS[0]), until_gone]
    with serving({PATH: endless}) as upstream, recording(folder, upstream.url, drain_s=0.1) as running:
        asyncio.run(ask_side_by_side(running.url.replace("http:", "https:") + PATH, 8))
        kept = running.exchanges()
        assert {exchange.transport for exchange in kept} == {Transport.H2}
        return len(upstream.asked)


def test_streams_side_by_side_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """All eight of one HTTP/2 connection are under way together."""
    assert streams_begun(tmp_path) == 8


def test_many_streams_need_their_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mitmproxy by itself has the sixth wait until one has ended."""
    without(monkeypatch, connections.allow_many_streams)
    assert streams_begun(tmp_path) == 5
