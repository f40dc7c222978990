"""The door of a real listener: strangers get JSON and nothing else happens; a secret path is nobody's but the client's."""

import json
from pathlib import Path

import pytest
from faulty.steps import whole
from faulty.upstream import serving
from mitmproxy import http
from recorded import ask, body_of, connect, read_all, recording

from tracer.admission import Entrance
from tracer.doorkeeper import Doorkeeper

PATH = "/v1/messages"
ANSWER = b'{"fine":1}'


def head(target: str, *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    """A request's head as a stranger would write it."""
    return "".join(f"{line}\r\n" for line in (f"{method} {target} HTTP/{version}", *lines, "")).encode("latin-1")


def said(url: str, sent: bytes) -> bytes:
    """What comes back for these bytes until the connection is closed."""
    with connect(url) as client:
        client.sendall(sent)
        return read_all(client)


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (head(PATH, "Host: evil.test", "Content-Length: 9", method="POST") + b"malicious", 403, "--allow-host evil.test"),
        (head(PATH, "Host: evil.test:1"), 403, "evil.test"),
        (head(PATH, "Host: localhost", "Origin: https://evil.test", "Content-Length: 2", method="POST") + b"{}", 403, "https://evil.test"),
        (head(PATH, "Host: localhost", "Origin: https://evil.test", method="OPTIONS"), 403, "https://evil.test"),
        (head(PATH, "Host: localhost", "Origin: null"), 403, "null"),
        (head(PATH, "Host: localhost", "Sec-Fetch-Site: cross-site"), 403, "another site"),
        (head(PATH, "Host: localhost", "Origin: https://evil.test", "Upgrade: websocket", "Connection: Upgrade"), 403, "evil.test"),
        (head(PATH, "Host: localhost", "Host: evil.test"), 400, "more than one"),
        (head("http://evil.test" + PATH, "Host: localhost"), 403, "evil.test"),
        (head("http://localhost:1" + PATH, "Host: localhost"), 403, "HTTP_PROXY"),
        (head("evil.test:443", "Host: evil.test:443", method="CONNECT"), 403, "evil.test"),
        (head(PATH, "Host: evil.test", "Transfer-Encoding: chunked", method="POST") + b"3\r\nabc\r\n0\r\n\r\n", 403, "evil.test"),
    ],
)
def test_a_stranger_is_told_and_nothing_else_happens(tmp_path: Path, sent: bytes, status: int, words: str) -> None:
    """JSON in the provider's shape; the upstream hears nothing, nothing is recorded, and it is told once."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url) as running:
        answers = [said(running.url, sent) for _ in range(2)]
        kept = running.exchanges()
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"access-control" not in answer.lower()
        error = json.loads(body_of(answer))
        assert words in json.dumps(error)
        assert "message" in error["error"]
    assert (kept, upstream.asked) == ([], [])
    assert [line for line in running.told if "refused a request" in line] == running.told[:1]
    assert "2 requests were refused" in running.told[-1]


@pytest.mark.parametrize(
    "lines",
    [
        ("Host: localhost",),
        ("Host: 127.0.0.1:1", "Origin: http://localhost:3000", "Sec-Fetch-Site: cross-site"),
        ("Host: [::1]", "Origin: vscode-webview://0a1b"),
        ("Host: [::1]", "Sec-Fetch-Site: none"),
    ],
)
def test_programs_and_local_pages_enter(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """And are recorded as ever."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url) as running:
        assert body_of(said(running.url, head(PATH, *lines, "Connection: close"))) == ANSWER
        assert len(running.exchanges()) == 1
    assert running.told == []


def test_old_clients_name_nothing(tmp_path: Path) -> None:
    """HTTP/1.0 knows no Host."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url) as running:
        assert ANSWER in said(running.url, head(PATH, version="1.0"))
        assert len(running.exchanges()) == 1


def test_a_target_that_names_the_listener_goes_on_as_a_path(tmp_path: Path) -> None:
    """The upstream is not told another's address."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url) as running:
        answer = said(running.url, head(running.url + PATH, "Host: localhost", "Connection: close"))
        (kept,) = running.exchanges()
    assert body_of(answer) == ANSWER
    assert upstream.asked[0].target == PATH
    assert kept.request.url == upstream.url + PATH


def test_a_name_can_be_allowed(tmp_path: Path) -> None:
    """Of a container's host, for instance."""
    with (
        serving({PATH: [whole(ANSWER)]}) as upstream,
        recording(tmp_path, upstream.url, names=frozenset(("box.example",))) as running,
    ):
        assert body_of(said(running.url, head(PATH, "Host: Box.Example:9", "Connection: close"))) == ANSWER


def test_a_connection_that_was_refused_once_serves_nobody(tmp_path: Path) -> None:
    """It is closed behind the answer: what stands behind a refused request is not read as the next one."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url) as running:
        got = said(running.url, head(PATH, "Host: evil.test") + head(PATH, "Host: localhost"))
        running.stop()
    assert got.count(b"HTTP/1.1") == 1
    assert upstream.asked == []


def test_one_that_leaves_in_mid_upload_is_forgotten(tmp_path: Path) -> None:
    """Nothing breaks, and nothing is kept."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url) as running:
        with connect(running.url) as client:
            client.sendall(head(PATH, "Host: evil.test", "Content-Length: 1000000", method="POST") + b"x" * 1000)
            assert client.recv(65536).startswith(b"HTTP/1.1 403")
        assert body_of(ask(running.url, PATH, b"{}")) == ANSWER
        assert len(running.exchanges()) == 1
    assert len(running.told) == 1


def test_a_malformed_request_of_a_stranger_is_told_once(tmp_path: Path) -> None:
    """mitmproxy answers what it cannot frame itself; nothing of it is kept either."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url) as running:
        got = said(running.url, head(PATH, "Host: evil.test", "Content-Length: many", method="POST") + b"x")
        assert running.exchanges() == []
    assert got.startswith(b"HTTP/1.1 400")
    assert [line for line in running.told if "NOT RECORDED" in line] == []


# ---- the secret path -----------------------------------------------------------------------------------------------

SECRET = "s3cret-Path_of-this.recorder"


def test_below_its_secret_path_a_listener_is_as_ever(tmp_path: Path) -> None:
    """The upstream and the trace never see it; a label may stand behind it."""
    with serving({"/base" + PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url + "/base", secret=SECRET) as running:
        assert running.url.endswith(f"/k/{SECRET}")
        assert body_of(ask(running.url, f"/k/{SECRET}{PATH}?beta=true", b"{}")) == ANSWER
        assert body_of(ask(running.url, f"/k/{SECRET}/s/one{PATH}", b"{}")) == ANSWER
        first, second = running.exchanges()
    assert [asked.target for asked in upstream.asked] == ["/base" + PATH + "?beta=true", "/base" + PATH]
    assert first.request.url == upstream.url + PATH + "?beta=true"
    assert second.origin.label == "one"
    assert SECRET.encode() not in (tmp_path / "a.trace").read_bytes()
    assert running.told == []


@pytest.mark.parametrize("path", [PATH, f"/k/{SECRET}x{PATH}", f"/k/{SECRET.lower()}{PATH}", "/", f"/K/{SECRET}{PATH}", "/k/"])
def test_beside_it_there_is_nothing(tmp_path: Path, path: str) -> None:
    """Whatever was tried does not come back, nor is it told or kept."""
    with serving({PATH: [whole(ANSWER)]}) as upstream, recording(tmp_path, upstream.url, secret=SECRET) as running:
        answer = ask(running.url, path, b"{}")
        assert running.exchanges() == []
    assert answer.startswith(b"HTTP/1.1 403")
    assert upstream.asked == []
    for text in (answer.decode(), *running.told):
        assert SECRET.lower() not in text.lower()
    assert len(running.told) == 1


# ---- HTTP/2 --------------------------------------------------------------------------------------------------------


def h2_request(authority: str, path: str = PATH, *more: tuple[bytes, bytes]) -> http.Request:
    """As mitmproxy makes one of an HTTP/2 head."""
    fields = http.Headers(more)
    return http.Request("", 0, b"POST", b"https", authority.encode(), path.encode(), b"HTTP/2.0", fields, None, None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("authority", "more", "why"),
    [
        ("localhost:8080", (), None),
        ("localhost:1", (), None),
        ("evil.test", (), "host"),
        ("localhost", ((b"host", b"evil.test"),), "host"),
        ("localhost", ((b"origin", b"https://evil.test"),), "origin"),
    ],
)
def test_http2_names_its_authority(authority: str, more: tuple[tuple[bytes, bytes], ...], why: str | None) -> None:
    """The same rules; its path loses the secret all the same."""
    keeper = Doorkeeper(lambda _: None)
    keeper.entrances = {8080: Entrance(port=8080, secret=SECRET)}
    asked = h2_request(authority, f"/k/{SECRET}{PATH}", *more)
    refused = keeper.turned_away(8080, asked)
    assert (refused.kind if refused else None) == why
    if refused is None:
        assert asked.path == PATH
        assert asked.authority == authority


def test_a_listener_without_entrance_has_rules_of_its_own() -> None:
    """A forward proxy is asked for every host there is."""
    keeper = Doorkeeper(lambda _: None)
    assert keeper.turned_away(8080, h2_request("api.example")) is None
