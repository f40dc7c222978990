"""Replays of odd recordings, to odd servers, with odd words: said in a line, and nothing counted that was no answer."""

import contextlib
import socket
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recorded_chats
from commands import playhead
from commands import serving as simulating
from golden_server import Script, Visitor, serving
from recorded_chats import chatting, exchange

from storage.records import Exchange, Request
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Two sessions of three turns."""
    path = tmp_path / "a.trace"
    recorded_chats.write(path)
    return path


def odd(session: int, **changed: Any) -> Exchange:
    """A first turn with another request."""
    made: Exchange = exchange(session, 1)
    request: Request = replace(made.request, **changed)
    return replace(made, request=request)


def with_odd(path: Path, *more: Exchange) -> Path:
    with Trace.open(path) as trace:
        writer = Writer(trace, wire.split)
        for one in more:
            writer.put(one)
        writer.close()
        reading.catch_up(trace)
    return path


def to(server: Any, trace: Path, *more: object, **variables: str) -> Any:
    return playhead("replay", "--trace", trace, "--target", server.url, "--gaps", "drop", *more, **variables)


def runs(trace: Path) -> list[Any]:
    found: list[Any] = playhead("runs", "--trace", trace, "--json").document
    return found


def test_a_key_that_no_header_can_carry_is_not_told(trace: Path) -> None:
    """Refused before a run is there."""
    done = playhead("replay", "--trace", trace, "--target", "http://127.0.0.1:9", "--key-env", "K", K="supersecretkey\nxx")
    assert done.code == 1
    assert done.tells("the key in K holds characters that no header can carry")
    assert "supersecret" not in done.err + done.out
    assert runs(trace) == []


def test_requests_that_cannot_be_sent_are_left_out_and_the_others_play_on(trace: Path) -> None:
    """No body, or an address h11 refuses; a body that is no JSON cannot carry the edits: a failed turn."""
    url = exchange(3, 1).request.url
    with_odd(trace, odd(3, body=b""), odd(4, url=url + "&q=\x1b[31m"), odd(5, body=b"not json"))
    with serving(chatting()) as server:
        done = to(server, trace, "--json")
    assert done.code == 0, done.err
    assert (done.document["turns"], done.document["failed"]) == (7, 1)
    assert done.document["left_out"] == {"unsendable": 2}
    assert "not sent: its body cannot carry the declared edits" in done.err


def test_a_header_that_http_cannot_carry_fails_its_turn_only(trace: Path) -> None:
    """A trace may hold anything."""
    with_odd(trace, odd(3, headers=(("content-type", "application/json"), ("x-odd", "a\nb"))))
    with serving(chatting()) as server:
        done = to(server, trace, "--json", "--length", "free")
    assert done.code == 0, done.err
    assert (done.document["turns"], done.document["failed"]) == (7, 1)


def test_a_setting_that_no_body_can_carry_is_refused_before_a_run(trace: Path) -> None:
    """`model` is a string: it has no fields."""
    with serving(chatting()) as server:
        done = to(server, trace, "--set", "model.x=1")
    assert done.code == 1
    assert done.tells("cannot carry the declared edits")
    assert runs(trace) == []


def saying(head: bytes, body: bytes) -> Script:
    """Always this answer, whole."""

    def script(visitor: Visitor) -> None:
        visitor.say(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body))

    return script


def no_content(visitor: Visitor) -> None:
    visitor.say(b"HTTP/1.1 204 No Content\r\n\r\n")


@pytest.mark.parametrize(
    "script",
    [
        saying(b"200 OK\r\nContent-Type: text/html", b"<h1>Welcome</h1>"),
        no_content,
        saying(b"200 OK\r\nContent-Type: text/event-stream", b"data: {bad\n\ndata: [DONE]\n\n"),
        saying(b"200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip", b"plain text"),
        saying(b"200 OK\r\nContent-Type: application/json", b"{}"),
    ],
)
def test_an_answer_that_is_none_counts_as_failed(trace: Path, script: Script) -> None:
    """Whatever its status."""
    with serving(script) as server:
        done = to(server, trace, "--json")
    assert done.code == 1
    assert (done.document["turns"], done.document["failed"]) == (6, 6)
    assert done.document["ttft_ms"]["n"] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "replay --target http://[::1",
        "replay --target http://exam\x1b[31mple",
        "replay --target http://..",
        f"replay --target http://{'a' * 300}",
        "replay --target ftp://a",
        "replay --target http://joe:targetpw123@h",
        "replay --target http://h/?key=targetpw123",
        "replay --target http://h --gaps nonsense",
        "replay --target http://h --speed 0",
        "replay --target http://h --set x",
        "replay --target http://h --set messages[0]=x",
        "replay --target http://h --model=",
        "compare r1 r2 --fail-if ttft_ms:+nan%",
        "compare r1 r2 --fail-if nonsense:+1%",
        "compare r1 r2 --margin nan",
        "compare r1 r2 --margin inf",
        "reuse --rules nonsense",
        "reuse --rules vllm --ttl nan",
        "simulate --ttl nan",
        "simulate --base-ms inf",
        "simulate --base-ms nan",
        "simulate --prefill-tps nan",
        "simulate --decode-tps nan",
        "simulate --fail nan",
        "report --rules nonsense",
        "report --format html --json",
        "show e1 --raw request --json",
        "record --listen nonsense",
        "record --listen=",
        "record --upstream=",
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(trace: Path, arguments: str) -> None:
    """No traceback, and what may be a secret is not repeated."""
    done = playhead(*arguments.split(" "), PLAYHEAD_TRACE=str(trace))
    assert done.code == 2, done.err
    assert done.tells()
    assert "targetpw123" not in done.err + done.out


def test_https_to_a_port_that_speaks_http_is_told_as_such(trace: Path) -> None:
    """Not as a missing permission: the number in an SSLError is OpenSSL's."""

    def answer() -> None:
        with contextlib.suppress(OSError):  # until it is closed
            while True:
                connection, _address = listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(20)
        serving_plainly = threading.Thread(target=answer, daemon=True)
        serving_plainly.start()
        done = playhead("replay", "--trace", trace, "--target", f"https://127.0.0.1:{listening.getsockname()[1]}")
        listening.shutdown(socket.SHUT_RDWR)
        serving_plainly.join(20)
    assert done.code == 1
    assert done.tells("does not speak TLS")


def test_where_all_was_refused_when_recorded_that_is_told(tmp_path: Path) -> None:
    """A trace of 401s is not an empty one."""
    made = exchange(1, 1)
    assert made.response is not None
    path = tmp_path / "b.trace"
    Trace.open(path, create=True).close()
    with_odd(path, replace(made, response=replace(made.response, status=401)))
    done = playhead("replay", "--trace", path, "--target", "http://127.0.0.1:9")
    assert done.code == 1
    assert done.tells("1 x answered with an error status")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_simulator_whose_truth_finds_no_room_goes_on_answering() -> None:
    """It says so, and its clients are served."""
    with simulating("simulate", "--truth", "/dev/full") as (process, url):
        for _ in range(2):
            asked = urllib.request.Request(f"{url}/v1/chat/completions", data=b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}')
            with urllib.request.urlopen(asked, timeout=20) as answer:
                assert answer.status == 200
        process.terminate()
        err = process.communicate(timeout=20)[1]
    assert err.count("the truth file is not whole") == 1
    assert "Traceback" not in err
