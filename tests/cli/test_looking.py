"""`sessions`, `exchanges`, `show`, `verify` and `reread` as their user meets them."""

import gzip
import hashlib
import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from identity_traffic import Wire, assistant, calls, cut, result, system, user

from cli.main import main
from storage.records import Exchange
from storage.trace import Trace
from storage.writer import Writer
from tracer import wire

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x1b[0m \u202edesrever"
SPAWN = ("call_spawn_0001", "spawn_agent", {"task": "Count all the files", "agent_type": "counter"})


def traffic() -> list[Exchange]:
    """A session with a sub-agent, a refused try, a packed body, an unread call."""
    made = Wire()
    opening = [system("Main"), user(HOSTILE)]
    joined = [*opening, calls(SPAWN), result("call_spawn_0001", "There are seven files.")]
    found = [
        made.exchange(opening, assistant(""), status=429),
        made.exchange(opening, calls(SPAWN)),
        made.exchange([system("Helper"), user("Count all the files")], assistant("There are seven files.")),
        made.exchange(joined, assistant("x" * 5000)),
        made.exchange([user("Another thing")], None, failure=cut()),
        made.exchange([], assistant("x"), path="/api/telemetry?token=abc"),
    ]
    packed = made.exchange([user("Packed up")], assistant("y"), headers=(("content-encoding", "gzip"),))
    found.append(replace(packed, request=replace(packed.request, body=gzip.compress(packed.request.body))))
    return [replace(exchange, id=None) for exchange in found]


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A trace of that traffic, not yet read."""
    path = tmp_path / "recorded.trace"
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, wire.split)
        for exchange in traffic():
            writer.put(exchange)
        writer.close()
    return path


def say(capfdbinary: pytest.CaptureFixture[bytes], *args: object) -> tuple[Any, bytes, str]:
    """Exit code, stdout, stderr of a command run in this interpreter."""
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    captured = capfdbinary.readouterr()
    return ended.value.code, captured.out, captured.err.decode()


def test_exchanges_as_json(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The contract's keys; ids are strings, times ISO with microseconds, what is unknown null."""
    code, out, _ = say(capfdbinary, "exchanges", "--json", "--trace", where)
    rows = json.loads(out)
    assert code == 0
    assert [row["id"] for row in rows] == ["e1", "e2", "e3", "e4", "e5", "e6", "e7"]
    keys = "id session thread agent parent_thread kind dialect transport method url model status state abort_by retry_of started_at ttft_ms"
    more = "e2e_ms prompt_tokens cached_tokens output_tokens request_bytes request_sha256 response_bytes response_sha256 chunks"
    assert set(f"{keys} {more}".split()) <= rows[0].keys()
    assert (rows[1]["retry_of"], rows[0]["state"], rows[0]["status"]) == ("e1", "complete", 429)
    assert rows[2]["parent_thread"] == rows[1]["thread"] != rows[2]["thread"]
    assert rows[2]["agent"] == "counter"
    assert (rows[4]["state"], rows[4]["abort_by"], rows[4]["status"]) == ("error", "upstream", None)
    assert (rows[5]["kind"], rows[5]["dialect"], rows[5]["session"]) == ("other", None, None)
    assert rows[0]["started_at"] == "2025-10-09T08:53:20.000000+00:00"
    assert rows[0]["ttft_ms"] is None
    assert rows[1]["ttft_ms"] == 0.003
    body = traffic()[6].request.body
    assert (rows[6]["request_bytes"], rows[6]["request_sha256"]) == (len(body), hashlib.sha256(body).hexdigest())


def test_exchanges_of_a_session(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """By id, by the beginning of its key; what is not there gives one line and a hint."""
    rows = json.loads(say(capfdbinary, "exchanges", "s1", "--json", "--trace", where)[1])
    assert [row["id"] for row in rows] == ["e1", "e2", "e3", "e4"]
    code, out, err = say(capfdbinary, "exchanges", "s77", "--trace", where)
    assert (code, out) == (1, b"")
    assert err.startswith("error: ")
    assert "hint: " in err


def test_exchanges_in_a_terminal(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A line each within 80 columns; unread traffic says so."""
    lines = say(capfdbinary, "exchanges", "--trace", where)[1].decode().splitlines()
    assert len(lines) == 8
    assert max(map(len, lines)) <= 80
    assert "unread" in lines[6]
    assert "429" in lines[1]


def test_sessions(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The contract's keys; figures nobody reported stay null."""
    found = json.loads(say(capfdbinary, "sessions", "--json", "--trace", where)[1])
    assert [(row["id"], row["threads"], row["turns"], row["side_calls"]) for row in found] == [
        ("s1", 2, 4, 0),
        ("s2", 1, 1, 0),
        ("s3", 1, 1, 0),
    ]
    keys = "id name client started_at duration_s threads turns side_calls models prompt_tokens cached_tokens output_tokens ideal_share"
    assert set(keys.split()) <= found[0].keys()
    assert (found[0]["client"], found[0]["models"], found[0]["prompt_tokens"]) == ("bench", ["m"], None)
    lines = say(capfdbinary, "sessions", "--trace", where)[1].decode().splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80


def test_raw_bodies_are_the_bytes_that_were_on_the_wire(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Packed as it came, unpacked when asked; the answer; the arrivals."""
    exchange = traffic()[6]
    assert exchange.response
    body = exchange.request.body
    assert say(capfdbinary, "show", "e7", "--raw", "request", "--trace", where)[1] == body
    assert say(capfdbinary, "show", "7", "--raw", "request", "--decoded", "--trace", where)[1] == gzip.decompress(body)
    assert say(capfdbinary, "show", "e7", "--raw", "response", "--trace", where)[1] == exchange.response.body
    assert json.loads(say(capfdbinary, "show", "e7", "--chunks", "--trace", where)[1]) == [[3000, len(exchange.response.body)]]
    assert say(capfdbinary, "show", "e5", "--raw", "response", "--trace", where)[:2] == (0, b"")


def test_both_hashes_of_an_encoded_body_are_kept(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """What was on the wire and its text, each by its sha256; a body without an encoding has no second one."""
    exchange = traffic()[6]
    assert exchange.response
    shown = json.loads(say(capfdbinary, "show", "e7", "--json", "--trace", where)[1])
    text = gzip.decompress(exchange.request.body)
    assert shown["request_sha256"] == hashlib.sha256(exchange.request.body).hexdigest()
    assert shown["request_decoded_sha256"] == hashlib.sha256(text).hexdigest()
    assert shown["response_decoded_sha256"] is None
    assert (shown["own_ms"], shown["stall_ms"]) == (None, None)


def test_captured_text_cannot_reach_the_terminal(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Escape sequences and direction changes are taken out; long texts are cut and say how long they are."""
    out = say(capfdbinary, "show", "e4", "--trace", where)[1].decode()
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "red" in out
    assert "spawn_agent" in out
    assert "5,000 characters in all" in out


def test_a_session_is_shown_as_a_tree(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """The sub-agent stands under its parent, between the calls around it."""
    lines = say(capfdbinary, "show", "s1", "--trace", where)[1].decode().splitlines()
    assert [line.split()[0] for line in lines] == ["s1", "start", "t1", "e1", "e2", "t2", "e3", "e4"]
    assert lines[5] == "  t2  counter, took 1.0 s, foreground, back in e4, by e2 call_spawn_0001"
    assert max(map(len, lines)) <= 80
    tree = json.loads(say(capfdbinary, "show", "s1", "--json", "--trace", where)[1])
    assert [[row["id"] for row in thread["exchanges"]] for thread in tree["threads"]] == [["e1", "e2", "e4"], ["e3"]]
    assert (tree["threads"][1]["parent_call"], tree["threads"][1]["mode"]) == ("call_spawn_0001", "foreground")
    assert (tree["threads"][1]["joined_exchange"], tree["compactions"]) == ("e4", [])


def test_reread_keeps_what_was_there(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Ids of sessions and threads outlast it."""
    before = say(capfdbinary, "exchanges", "--json", "--trace", where)[1]
    assert json.loads(say(capfdbinary, "reread", "--json", "--trace", where)[1]) == {"exchanges": 7, "sessions": 3}
    assert say(capfdbinary, "exchanges", "--json", "--trace", where)[1] == before


def test_verify(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """0 when whole; 3 and the problem in words when a byte has changed."""
    assert say(capfdbinary, "verify", "--trace", where)[0] == 0
    assert json.loads(say(capfdbinary, "verify", "--json", "--trace", where)[1])["whole"] is True
    connection = sqlite3.connect(where)
    connection.execute("UPDATE elements SET size = size + 1 WHERE id = 1")
    connection.commit()
    connection.close()
    code, out, err = say(capfdbinary, "verify", "--trace", where)
    assert code == 3
    assert b"element 1" in out
    assert "error: " in err


def test_an_exchange_as_people_read_it(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Who said no, what broke, what could not be read, what was answered."""
    refused = say(capfdbinary, "show", "e1", "--trace", where)[1].decode()
    assert "the provider says: no" in refused
    broken = say(capfdbinary, "show", "e5", "--trace", where)[1].decode()
    assert "server_cut" in broken
    unread = say(capfdbinary, "show", "e6", "--trace", where)[1].decode()
    assert '{"model": "m", "messages": []}' in unread
    asked = say(capfdbinary, "show", "e2", "--trace", where)[1].decode()
    assert '[call] spawn_agent {"task": "Count all the files"' in asked
    document = json.loads(say(capfdbinary, "show", "e5", "--json", "--trace", where)[1])
    assert document["failure"] == {"kind": "server_cut", "message": "server_cut", "at_ms": 0.001}
    assert document["messages"] == 1


def test_a_thread_is_shown_alone(where: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Its own calls only."""
    lines = say(capfdbinary, "show", "t2", "--trace", where)[1].decode().splitlines()
    assert [line.split()[0] for line in lines] == ["start", "t2", "e3"]


def test_decoding_what_cannot_be_decoded(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """One line and a way round it; `--decoded` alone is wrong usage."""
    made = Wire()
    exchange = replace(made.exchange([user("x")], assistant("y"), headers=(("content-encoding", "snappy"),)), id=None)
    with Trace.open(tmp_path / "a.trace", create=True) as trace:
        writer = Writer(trace, wire.split)
        writer.put(exchange)
        writer.close()
    code, _, err = say(capfdbinary, "show", "e1", "--raw", "request", "--decoded", "--trace", tmp_path / "a.trace")
    assert code == 1
    assert "snappy" in err
    assert say(capfdbinary, "show", "e1", "--decoded", "--trace", tmp_path / "a.trace")[0] == 2


def test_an_empty_trace_says_how_to_begin(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Nothing on stdout but the empty list that was asked for; a hint on stderr."""
    Trace.open(tmp_path / "a.trace", create=True).close()
    for command in ("sessions", "exchanges"):
        code, out, err = say(capfdbinary, command, "--trace", tmp_path / "a.trace")
        assert (code, out) == (0, b"")
        assert "playhead run" in err
        assert say(capfdbinary, command, "--json", "--trace", tmp_path / "a.trace")[1] == b"[]\n"
    assert "0 exchanges read again" in say(capfdbinary, "reread", "--trace", tmp_path / "a.trace")[2]
