"""Keys planted wherever a client, a server or a user may put one; then every byte that the recorder leaves behind is searched for them.

Bodies are kept as they are by contract, so none is planted there.
"""

import base64
import gzip
import itertools
import json
import random
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from backports import zstd
from commands import LIMIT_S, PLAYHEAD, environment, playhead, serving
from faulty.steps import Step, chunk, cut, head, last, send, until_gone, whole
from faulty.upstream import FaultyServer
from faulty.upstream import serving as upstream_of
from recorded import ask, connect, read_all
from websocket_ends import Client, Packer, closing, heard, upgraded

from storage.packing import Codec

RANDOM = random.Random(20)
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


class Planted:
    """Secrets by the place where they were planted; each a random core, behind what such keys begin with."""

    def __init__(self) -> None:
        self.cores: list[tuple[str, str]] = []

    def key(self, place: str, begin: str = "", size: int = 40) -> str:
        core = "".join(RANDOM.choices(LETTERS, k=size))
        self.cores.append((place, core))
        return begin + core

    def word(self, place: str) -> str:
        """One that looks like nothing at all."""
        core = "".join(RANDOM.choices("bcdfghjklmnpqrstvwxz", k=14))
        self.cores.append((place, core))
        return core

    def found(self, content: bytes) -> set[str]:
        """The places whose secret, its first or last twelve characters, or its base64 stands in the content."""
        return {place for place, core in self.cores if any(needle in content for needle in _needles(core))}


def _needles(core: str) -> Iterator[bytes]:
    yield from (core[:12].encode(), core[-12:].encode())
    for shift in range(3):
        yield base64.b64encode(b"x" * shift + core.encode())[4:-6]


def header_lines(planted: Planted) -> tuple[tuple[str, str], ...]:
    """Every header that is known to carry a key, and some that nobody knows."""
    basic = base64.b64encode(f"me:{planted.key('basic')}".encode()).decode()
    return (
        ("x-api-key", planted.key("x-api-key", "sk-ant-api03-")),
        ("Authorization", "Bearer " + planted.key("authorization", "sk-proj-")),
        ("AUTHORIZATION", "Basic " + basic),
        ("api-key", planted.word("api-key")),
        ("x-goog-api-key", planted.key("x-goog-api-key", "AIza")),
        ("Proxy-Authorization", "Bearer " + planted.word("proxy-authorization")),
        ("Cookie", f"sessionKey={planted.key('cookie', 'sk-sid-')}; theme={planted.word('cookie, second')}"),
        ("x-amz-security-token", planted.key("x-amz-security-token", "IQoJ")),
        ("cf-access-client-secret", planted.word("cf-access-client-secret")),
        ("X-Auth-Token", planted.word("x-auth-token")),
        ("X-Nobody-Knows", planted.word("unknown header")),
        ("X-Forwarded-Authorization", planted.word("forwarded")),
        ("User-Agent", f"agent/1.0 key={planted.word('user-agent')}"),
        ("Referer", f"http://me:{planted.word('referer, userinfo')}@page.test/x?token={planted.word('referer, query')}"),
        ("x-codex-turn-metadata", json.dumps({"turn": 1, "access_token": planted.word("metadata")})),
    )


def query(planted: Planted) -> str:
    """By names that say it, by one that does not, and without a name."""
    names = ("key", "api_key", "access_token", "sig", "X-Amz-Signature", "client_secret", "code")
    named = "&".join(f"{name}={planted.word(f'query {name}')}" for name in names)
    return f"n=1&{named}&q={planted.key('query, unknown name')}&model={planted.key('query, known name')}&{planted.key('query, bare')}"


def answers(planted: Planted) -> dict[str, list[Step]]:
    """What the server answers: it sets cookies, and repeats what it was sent."""
    cookie = f"sid={planted.word('set-cookie')}; HttpOnly"
    echo = (
        ("Set-Cookie", cookie),
        ("WWW-Authenticate", f'Bearer realm="x", error_description="{planted.key("www-authenticate", "sk-")} is wrong"'),
        ("X-Echo", planted.word("echo")),
        ("Location", f"https://login.test/?token={planted.word('location')}"),
        ("Content-Type", "application/json"),
    )
    trailers = f"X-Auth: {planted.word('trailer')}\r\n".encode()
    close = planted.key("close reason", "sk-")
    bye = [send(each) for each in Packer(masks=False).frames(closing(1008, f"wrong key {close}"), 8)]
    protocol = f"Sec-WebSocket-Protocol: openai-insecure-api-key.{planted.word('protocol of the answer')}"
    return {
        "/v1/messages": [head("401 Unauthorized", echo), chunk(b"{}"), last(trailers)],
        "/v1/cut": [head("200 OK", echo), chunk(b"data: 1\n\n"), cut],
        "/v1/open": [head("200 OK", echo), chunk(b"data: 1\n\n"), until_gone],
        "/v1/responses": [upgraded(protocol, f"Set-Cookie: {cookie}"), heard, *bye, heard, cut],
    }


def every_path(server: FaultyServer, planted: Planted) -> None:
    """A path whose segment is a key is answered too."""
    server._answers = {**server._answers, f"/bot{planted.key('path', '123456:')}/send": [whole(b"{}")]}


def speak(url: str, server: FaultyServer, planted: Planted) -> None:
    """Everything that a client may say, to an upstream that is there."""
    headers, asked = header_lines(planted), query(planted)
    for path in ("/v1/messages", "/v1/cut", *(path for path in server._answers if path.startswith("/bot"))):
        ask(url, f"{path}?{asked}", b"{}", headers)
    trailer = f"X-Key: {planted.word('request trailer')}\r\n"
    body = f"2\r\n{{}}\r\n0\r\n{trailer}\r\n"
    raw(url, f"POST /v1/messages?{asked} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
    offered = f"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{planted.word('protocol')}, {planted.key('bare protocol')}"
    lines = (*(f"{name}: {value}" for name, value in headers), offered)
    client = Client(url, f"/v1/responses?{asked}", headers=lines)
    client.say(b"{}")
    client.say(closing(1000, f"bye {planted.key('close reason of the client', 'sk-')}"), 8)
    client.wait_for_end()
    client.socket.close()


def intrude(url: str, planted: Planted) -> None:
    """Requests that are refused, or that are none."""
    place = url.removeprefix("http://")
    for target, host in (
        (f"/v1/messages?key={planted.word('refused, query')}", "evil.test"),
        (f"http://me:{planted.word('refused, userinfo')}@{place}/x", "localhost"),
        (f"http://{place}/x", f"me:{planted.word('refused, host')}@localhost"),
    ):
        raw(url, f"POST {target} HTTP/1.1\r\nHost: {host}\r\nx-api-key: {planted.word(f'refused {host}')}\r\nContent-Length: 0\r\n\r\n")
    raw(url, f"GET /x?key={planted.word('malformed')} HTTP/1.1 no\r\nAuthorization: Bearer {planted.word('malformed header')}\r\n\r\n")
    raw(url, f"GET /x HTTP/1.1\r\nHost: localhost\r\nx-api-key {planted.key('no colon')}\r\n\r\n")
    raw(url, f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{planted.key('prior knowledge')}")
    with connect(url) as client:  # leaves in the middle of a head
        client.sendall(f"GET /x HTTP/1.1\r\nx-api-key: {planted.key('half a head')}".encode())


def raw(url: str, sent: str) -> None:
    with connect(url) as client:
        client.sendall(sent.encode("latin-1"))
        client.shutdown(socket.SHUT_WR)
        read_all(client)


def contents(trace: Path) -> Iterator[tuple[str, bytes]]:
    """Every file beside the trace as it is, and every value of every table as it is and unpacked."""
    for file in trace.parent.glob(f"{trace.name}*"):
        yield file.name, file.read_bytes()
    with sqlite3.connect(f"file:{trace}?mode=ro", uri=True) as base:
        codec = Codec(base.execute("SELECT content FROM meta WHERE key = 'dictionary'").fetchone()[0])
        for (table,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for value in itertools.chain.from_iterable(base.execute(f'SELECT * FROM "{table}"')):
                for content in unpacked(codec, value):
                    yield f"table {table}", content
    base.close()


def unpacked(codec: Codec, value: object) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode()
    elif isinstance(value, bytes):
        yield value
        for unpack in (codec.decompress, zstd.decompress, zlib.decompress, gzip.decompress):
            try:
                yield unpack(value)
            except (ValueError, OSError, EOFError, zlib.error, zstd.ZstdError):
                continue


def leaks(trace: Path, planted: Planted) -> set[tuple[str, str]]:
    return {(where, place) for where, content in contents(trace) for place in planted.found(content)}


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """In a body, which is kept by contract: packed as it is, whole or in part."""
    planted = Planted()
    trace = tmp_path / "a.trace"
    with upstream_of({"/x": [whole(b"{}")]}) as server, serving("record", "--upstream", server.url, "--trace", trace) as (_, url):
        ask(url, "/x", json.dumps({"key": planted.key("a body")}).encode() * 9)
    assert ("table bodies", "a body") in leaks(trace, planted)


@pytest.mark.timeout(180)
def test_no_key_stays_behind(tmp_path: Path) -> None:
    """Not in the trace, its log, what is said, listed or shown: while it records, when it is killed, and afterwards."""
    planted, trace = Planted(), tmp_path / "a.trace"
    told: list[tuple[str, bytes]] = []
    with upstream_of(answers(planted)) as server:
        every_path(server, planted)
        upstreams = ("--upstream", server.url, "--upstream", "http://127.0.0.1:1", "--trace", trace)
        command = [*PLAYHEAD, "record", *map(str, upstreams), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
            assert process.stdout
            urls = [json.loads(process.stdout.readline())["url"] for _ in range(2)]
            speak(urls[0], server, planted)
            intrude(urls[0], planted)
            ask(urls[1], f"/v1/messages?{query(planted)}", b"{}", header_lines(planted))
            with connect(urls[0]) as client:
                lines = "".join(f"{name}: {value}\r\n" for name, value in header_lines(planted))
                client.sendall(f"GET /v1/open?{query(planted)} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
                while b"data: 1" not in client.recv(65536):
                    pass
                for _ in range(500):
                    if any(b"/v1/open" in content for _, content in contents(trace)):
                        break
                    time.sleep(0.02)
                told += contents(trace)
                process.send_signal(signal.SIGKILL)
            out, err = process.communicate(timeout=LIMIT_S)
            told += [("stdout", out), ("stderr", err)]
        with serving("record", *upstreams):  # takes over what the killed one left
            pass
    for arguments in (("exchanges",), ("exchanges", "--json"), ("sessions", "--json"), ("verify",), ("report", "--format", "json")):
        told.append((" ".join(arguments), repr(playhead(*arguments, "--trace", trace)).encode()))
    rows = playhead("exchanges", "--trace", trace, "--json").document
    told += [("show", repr(playhead("show", row["id"], "--json", "--trace", trace)).encode()) for row in rows[:3]]
    told.append(("show", repr(playhead("show", rows[0]["id"], "--trace", trace)).encode()))
    assert len(rows) == 7
    found = leaks(trace, planted) | {(where, place) for where, content in told for place in planted.found(content)}
    assert found == set()
    assert len(planted.cores) > 100
    assert any(b"refused a request" in content for where, content in told if where == "stderr")


def test_what_a_command_is_started_with_stays_its_own(tmp_path: Path) -> None:
    """Its arguments and its environment, and what is said of them."""
    planted, trace = Planted(), tmp_path / "a.trace"
    arguments = [
        *("--api-key", planted.word("option"), f"--token={planted.word('option with =')}", "-u", f"me:{planted.word('-u')}"),
        *("-H", f"x-api-key: {planted.word('-H')}", "-H", f"Authorization: Bearer {planted.word('-H bearer')}"),
        *(f"http://me:{planted.word('url')}@h.test/x", f"OPENAI_API_KEY={planted.word('assignment')}", planted.key("bare")),
        *("--settings", json.dumps({"env": {"ANTHROPIC_API_KEY": planted.word("settings")}}), "--password", planted.word("password")),
    ]
    variables = {
        "OPENAI_API_KEY": planted.word("variable"),
        "OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"openai": {"options": {"apiKey": planted.word("configuration")}}}}),
        "NO_PROXY": f"http://me:{planted.word('no proxy')}@h.test",
        "PLAYHEAD_SECRET_PATH": planted.key("secret path"),
    }
    program = tmp_path / "opencode"
    asks = "import json, os, urllib.request as u\n"
    asks += "base = json.loads(os.environ['OPENCODE_CONFIG_CONTENT'])['provider']['openai']['options']['baseURL']\n"
    asks += "u.urlopen(u.Request(base + '/chat/completions', b'{}')).read()\n"
    program.write_text(f"#!{sys.executable}\n{asks}")
    program.chmod(0o700)
    with upstream_of({"/v1/chat/completions": [whole(b"{}")]}) as server:
        ended = playhead("run", "--upstream", server.url, "--trace", trace, "--", program, *arguments, **variables)
    assert ended.code == 0, ended.err
    assert "recorded 1 exchange" in ended.err
    found = leaks(trace, planted) | {("said", place) for place in planted.found(repr(ended).encode())}
    assert found == set()
    assert any(b"opencode --api-key ***" in content for _, content in contents(trace))


def test_a_replays_key_is_named_and_not_kept(tmp_path: Path) -> None:
    """Of `--key-env` the variable's name; of its answers no cookie; of a target no password."""
    planted, trace = Planted(), tmp_path / "a.trace"
    answer = b'{"id":"msg_1","type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}'
    body = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}'
    key = planted.key("key of the replay", "sk-")
    cookie = f"Set-Cookie: sid={planted.word('cookie of the replay')}\r\nX-Echo: {key}\r\n"
    said = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{cookie}Content-Length: {len(answer)}\r\n\r\n".encode() + answer
    with upstream_of({"/v1/messages": [send(said)]}) as server:
        with serving("record", "--upstream", server.url, "--trace", trace) as (_, url):
            ask(url, "/v1/messages", body, (("x-api-key", planted.key("recorded")), ("Content-Type", "application/json")))
        ended = playhead("replay", "--trace", trace, "--target", server.url, "--key-env", "SOME_KEY", "--json", SOME_KEY=key)
        assert ended.code == 0, ended.err
        assert any(key.encode() in asked.head for asked in server.asked)
        place = server.url.removeprefix("http://")
        refused = playhead("replay", "--trace", trace, "--target", f"http://me:{planted.word('target')}@{place}", "--json")
    listed = playhead("runs", "--trace", trace, "--json")
    told = repr((ended, refused, listed, playhead("report", "r1", "--trace", trace, "--format", "html", "-o", tmp_path / "r.html")))
    report = (tmp_path / "r.html").read_bytes()
    found = leaks(trace, planted) | {("said", place) for place in planted.found(told.encode() + report)}
    assert found == set()


def test_a_crash_shows_no_values(tmp_path: Path) -> None:
    """A fault of ours shows its traceback: lines of code, and no value of a statement or a header."""
    planted = Planted()
    program = f"""
import sys
from pathlib import Path
from storage.trace import Trace
import sqlalchemy as sa
with Trace.open({str(tmp_path / "a.trace")!r}, create=True) as trace, trace.engine.begin() as connection:
    connection.execute(sa.text("INSERT INTO nowhere VALUES (:a)"), {{"a": sys.argv[1]}})
"""
    command = [sys.executable, "-c", program, planted.key("parameter")]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False, env=environment())
    assert b"Traceback" in done.stderr
    assert planted.found(done.stderr) == set()
    assert re.search(rb"parameters hidden", done.stderr)
