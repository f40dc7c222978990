"""`session` and `sessions --explain` as their user meets them: decisions beat signals, outlast `reread`, can be taken back."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from identity_traffic import Wire, assistant, user

from cli.main import main
from storage.records import Exchange
from storage.trace import Trace
from storage.writer import Writer
from tracer import wire

type Say = Callable[..., Any]


def turns(made: Wire, said: tuple[str, ...], session: str | None) -> list[Exchange]:
    """A conversation, a turn more each time."""
    found: list[Exchange] = []
    talk: list[Any] = []
    ids = () if session is None else (("x-session-id", session),)
    for text in said:
        talk = [*talk, user(text)]
        found.append(replace(made.exchange(talk, assistant(f"To {text}"), headers=ids), id=None))
        talk.append(assistant(f"To {text}"))
    return found


def write(path: Path, exchanges: list[Exchange]) -> None:
    """Stores exchanges as a recorder would."""
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, wire.split)
        for exchange in exchanges:
            writer.put(exchange)
        writer.close()


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Say:
    """Runs a command on a trace of three sessions; its document, or (exit code, stdout, stderr) with `plain`."""
    made = Wire()
    words = [("One thing", "Two things", "Three things"), ("Another thing", "And more"), ("The last",)]
    write(tmp_path / "a.trace", [each for place, said in enumerate(words) for each in turns(made, said, f"ses_number_{place}")])
    monkeypatch.setenv("PLAYHEAD_TRACE", str(tmp_path / "a.trace"))

    def run(*args: str, plain: bool = False) -> Any:
        with pytest.raises(SystemExit) as ended:
            main([*args] if plain else [*args, "--json"])
        captured = capfdbinary.readouterr()
        return (ended.value.code, captured.out.decode(), captured.err.decode()) if plain else json.loads(captured.out)

    return run


def members(say: Say) -> dict[str, list[str]]:
    """session -> exchanges."""
    found: dict[str, list[str]] = {}
    for row in say("exchanges"):
        found.setdefault(row["session"], []).append(row["id"])
    return found


APART = {"s1": ["e1", "e2", "e3"], "s2": ["e4", "e5"], "s3": ["e6"]}


def test_merged_sessions_stay_one_until_that_is_taken_back(say: Say) -> None:
    """The first keeps its id; threads stay threads of their own; reread changes nothing."""
    assert members(say) == APART
    assert say("session", "merge", "s1", "s2")["threads"] == 2
    merged = {"s1": ["e1", "e2", "e3", "e4", "e5"], "s3": ["e6"]}
    assert members(say) == merged
    say("reread")
    assert members(say) == merged
    assert [each["into"] for each in say("session", "decisions")] == ["ses_number_0"]
    assert say("session", "undo")["kind"] == "merge"
    assert members(say) == APART
    say("reread")
    assert members(say) == APART


def test_a_merge_of_a_merge(say: Say) -> None:
    """What was merged goes along."""
    say("session", "merge", "s2", "s3")
    say("session", "merge", "s1", "s2")
    assert members(say) == {"s1": ["e1", "e2", "e3", "e4", "e5", "e6"]}
    say("session", "undo")
    assert members(say) == {"s1": ["e1", "e2", "e3"], "s2": ["e4", "e5", "e6"]}


def test_a_split_session_goes_on_as_another(say: Say, tmp_path: Path) -> None:
    """From the exchange on; what is recorded later goes with it; undone, it is one again."""
    assert members(say) == APART
    new = say("session", "split", "s1", "--at", "e2")
    assert members(say) == {"s1": ["e1"], new["id"]: ["e2", "e3"], "s2": ["e4", "e5"], "s3": ["e6"]}
    made = Wire()
    made.now_s = 100
    write(tmp_path / "a.trace", turns(made, ("One thing", "Much later"), "ses_number_0")[1:])
    assert members(say)[new["id"]] == ["e2", "e3", "e7"]
    say("reread")
    assert members(say)[new["id"]] == ["e2", "e3", "e7"]
    say("session", "undo")
    assert members(say)["s1"] == ["e1", "e2", "e3", "e7"]


def test_names_and_notes(say: Say) -> None:
    """Kept by reread; found by name; taken away by an empty one."""
    assert say("session", "rename", "s1", "nightly")["name"] == "nightly"
    assert say("session", "note", "nightly", "with the old prompt")["note"] == "with the old prompt"
    say("reread")
    assert say("show", "nightly")["note"] == "with the old prompt"
    assert say("session", "rename", "nightly", "")["name"] == "ses_number_0"
    assert say("session", "note", "s1", " ")["note"] is None


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("session", "merge", "s1", "s1"), "into itself"),
        (("session", "split", "s1", "--at", "e5"), "not in that session"),
        (("session", "split", "s1", "--at", "e1"), "first exchange"),
        (("session", "undo"), "nothing was decided"),
        (("session", "rename", "s77", "x"), "there is no session"),
    ],
)
def test_what_cannot_be_decided_is_told_in_one_line(say: Say, args: tuple[str, ...], words: str) -> None:
    """Exit 1, an error and a hint, nothing changed."""
    code, out, err = say(*args, plain=True)
    assert (code, out) == (1, "")
    assert words in err
    assert "hint: " in err
    assert members(say) == APART


def test_why_exchanges_are_one_session(say: Say) -> None:
    """Each signal with its source and confidence, what contradicts, what the user decided."""
    (told,) = say("sessions", "s1", "--explain")
    assert told["evidence"] == [{"source": "header", "confidence": 0.98, "exchanges": ["e1", "e2", "e3"]}]
    assert told["signals"] == [{"name": "header:x-session-id", "value": "ses_number_0", "exchanges": ["e1", "e2", "e3"]}]
    assert told["contradictions"] == []
    say("session", "merge", "s1", "s2")
    (told,) = say("sessions", "s1", "--explain")
    assert [each["source"] for each in told["evidence"]] == ["header", "user"]
    assert told["contradictions"] == [{"says": "header:x-session-id has 2 values in this session", "exchanges": ["e4", "e5"]}]
    assert told["decisions"][0]["session"] == "ses_number_1"
    out = say("sessions", "s1", "--explain", plain=True)[1]
    assert "you decided: ses_number_1 is part of ses_number_0" in out
    assert "0.98  an id of the session in the headers (header): e1-e3" in out
    assert "taken back" in say("session", "undo", plain=True)[2]


def test_no_signal_names_it(tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that only its words hold together says so."""
    monkeypatch.setenv("PLAYHEAD_TRACE", str(tmp_path / "b.trace"))
    write(tmp_path / "b.trace", turns(Wire(), ("One thing", "Two things"), None))
    out = say("sessions", "--explain", plain=True)[1]
    assert "no signal names the session" in out
    assert "nothing: it begins a session (first): e1" in out
    assert "nothing speaks against it" in out
    assert say("session", "decisions", plain=True)[1] == ""
