"""`replay`, `runs` and `compare` as their user meets them: documents on stdout, talk on stderr, exit codes."""

import itertools
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import recorded_chats
from golden_server import GoldenServer, Visitor, serving
from recorded_chats import chatting, refusing

from cli.main import main

FIELDS = {
    "run",
    "turns",
    "failed",
    "ttft_ms",
    "itl_ms",
    "e2e_ms",
    "makespan_s",
    "lag_ms",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of two sessions of three turns."""
    where = tmp_path / "recorded.trace"
    recorded_chats.write(where)
    return where


class Said:
    """What one command said, and how it ended."""

    def __init__(self, code: Any, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def say(capsys: pytest.CaptureFixture[str], *args: object) -> Said:
    """Runs a command in this interpreter."""
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    captured = capsys.readouterr()
    return Said(ended.value.code, captured.out, captured.err)


def replayed(capsys: pytest.CaptureFixture[str], trace: Path, server: GoldenServer, *args: object) -> Said:
    return say(capsys, "replay", "--trace", trace, "--target", server.url, "--gaps", "drop", "--length", "free", *args)


def test_a_replay_prints_the_documented_figures(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document on stdout, talk on stderr."""
    with serving(chatting()) as server:
        said = replayed(capsys, trace, server, "--json")
    assert said.code == 0
    assert set(said.document) >= FIELDS
    assert (said.document["run"], said.document["turns"], said.document["failed"]) == ("r1", 6, 0)
    assert set(said.document["ttft_ms"]) >= {"p50", "p90", "p99"}
    assert "playing 6 turns of 2 sessions" in said.err


def test_a_replay_in_words_fits_a_terminal_and_names_what_to_do_next(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Small samples are marked."""
    with serving(chatting(cached=None)) as server:
        said = replayed(capsys, trace, server)
    assert "TTFT" in said.out
    assert "cached not reported" in said.out
    assert "* too few turns" in said.out
    assert "playhead exchanges r1" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_named_sessions_alone_are_played(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And an unknown one is an error with a hint."""
    with serving(chatting()) as server:
        assert replayed(capsys, trace, server, "s1", "--json").document["turns"] == 3
        unknown = replayed(capsys, trace, server, "s99")
    assert unknown.code == 1
    assert "error:" in unknown.err
    assert "hint:" in unknown.err


def test_a_dry_run_sends_nothing(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how much, how long at least, and with which edits."""
    with serving(chatting()) as server:
        said = say(capsys, "replay", "--trace", trace, "--target", server.url, "--dry-run", "--json", "--copies", 3)
        words = say(capsys, "replay", "--trace", trace, "--target", server.url, "--dry-run")
        assert server.asked == []
    assert (said.document["turns"], said.document["sessions"], said.document["output_tokens"]) == (18, 6, 72)
    assert said.document["longest_wait_s"] == pytest.approx(0.04)
    assert "edit: max_output_tokens" in words.out


def test_failures_come_first_with_what_to_do(trace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key fails every turn: exit 1, and a hint that names the option."""
    monkeypatch.setenv("SOME_KEY", "sk-not-the-right-one")
    with serving(refusing(b"401 Unauthorized")) as server:
        said = replayed(capsys, trace, server, "--key-env", "SOME_KEY", "--json")
    assert said.code == 1
    assert said.document["failures"] == {"status 401": 6}
    assert "6 of 6 turns failed: 6 x status 401" in said.err
    assert "--key-env" in said.err
    assert "not-the-right-one" not in said.err + said.out


@pytest.mark.parametrize(("status", "hint"), [(b"404 Not Found", "--model"), (b"500 Oops", "playhead show")])
def test_each_failure_has_its_hint(trace: Path, capsys: pytest.CaptureFixture[str], status: bytes, hint: str) -> None:
    """What to look at first."""
    with serving(refusing(status)) as server:
        assert hint in replayed(capsys, trace, server).err


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("--target", "http://127.0.0.1:9"), 1, "cannot be reached"),
        (("--target", "127.0.0.1:9"), 2, "not the URL of a server"),
        (("--target", "http://127.0.0.1:9", "--gaps", "short"), 2, "gap policy"),
        (("--target", "http://127.0.0.1:9", "--set", "x"), 2, "--set"),
        (("--target", "http://127.0.0.1:9", "--key-env", "NO_SUCH_KEY"), 1, "NO_SUCH_KEY"),
        (("--target", "http://127.0.0.1:9", "--cache", "warm"), 2, "warm"),
        (("--target", "http://127.0.0.1:9", "--copies", "0"), 2, "--copies"),
        ((), 2, "--target"),
    ],
)
def test_bad_input_is_one_clear_line_with_a_hint(
    trace: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], code: int, told: str
) -> None:
    """1 for what the user can mend, 2 for wrong usage; no traceback."""
    said = say(capsys, "replay", "--trace", trace, *args)
    assert said.code == code
    assert told in said.err
    assert "hint:" in said.err
    assert "Traceback" not in said.err


def test_a_trace_without_sessions_has_nothing_to_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says how to get one."""
    recorded_chats.write(tmp_path / "empty.trace", sessions=0)
    said = say(capsys, "replay", "--trace", tmp_path / "empty.trace", "--target", "http://127.0.0.1:9")
    assert said.code == 1
    assert "nothing to replay" in said.err


def test_runs_lists_every_replay(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its policy and its figures."""
    assert say(capsys, "runs", "--trace", trace, "--json").document == []
    with serving(chatting()) as server:
        replayed(capsys, trace, server)
        (run,) = say(capsys, "runs", "--trace", trace, "--json").document
        words = say(capsys, "runs", "--trace", trace).out
    assert (run["id"], run["target"], run["turns"], run["failed"], run["gaps"]) == ("r1", server.url, 6, 0, "drop")
    assert "r1" in words
    assert server.url[:20] in words


def test_compare_prints_a_verdict_for_each_metric(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And fails with exit code 3 when a limit is broken."""
    with serving(chatting(wait_s=0.01)) as fast, serving(chatting(wait_s=0.1)) as slow:
        replayed(capsys, trace, fast)
        replayed(capsys, trace, slow)
    said = say(capsys, "compare", "r1", "r2", "--trace", trace, "--json")
    assert said.code == 0
    ttft = said.document["ttft_ms"]
    assert set(ttft) >= {"a", "b", "ratio", "ci", "verdict", "n_sessions", "n_turns"}
    assert (ttft["verdict"], ttft["n_sessions"], ttft["n_turns"], ttft["weak"]) == ("worse", 2, 6, True)
    assert ttft["ci"][0] <= ttft["ratio"] <= ttft["ci"][1]
    assert said.document["cached_tokens"]["verdict"] == "no difference"
    limited = say(capsys, "compare", "r1", "r2", "--trace", trace, "--fail-if", "ttft_ms:+10%")
    assert limited.code == 3
    assert "ttft_ms grew by" in limited.err
    assert "worse *" in limited.out
    assert max(map(len, limited.out.splitlines())) <= 80
    assert say(capsys, "compare", "r2", "r1", "--trace", trace, "--json").document["ttft_ms"]["verdict"] == "better"


def test_compare_refuses_runs_that_played_different_things(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No verdict, the difference in one line, exit 1."""
    with serving(chatting()) as server:
        replayed(capsys, trace, server)
        replayed(capsys, trace, server, "s1")
    said = say(capsys, "compare", "r1", "r2", "--trace", trace, "--json")
    assert (said.code, said.out) == (1, "")
    assert "2 sessions, 6 turns" in said.err
    assert "1 sessions, 3 turns" in said.err


def test_compare_says_failures_first(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says what is not reported in words, not as 0."""
    served = iter([refusing(b"503 Busy"), *[chatting(cached=None)] * 5])
    with serving(lambda visitor: next(served)(visitor)) as server, serving(chatting(cached=None)) as other:
        assert "1 of 6 turns failed" in replayed(capsys, trace, server, "--concurrency", 1).err
        replayed(capsys, trace, other, "--concurrency", 1)
    said = say(capsys, "compare", "r1", "r2", "--trace", trace)
    assert "1 turns of the first run failed: 1 x status 503" in said.err
    assert "1 turns are left out of both arms" in said.err
    assert "not reported in both runs: " in said.out


def test_ctrl_c_keeps_what_had_ended_and_says_what_was_not_sent(trace: Path) -> None:
    """Exit code 130; the turn under way is kept as interrupted, and the run has its figures."""
    third_came, over = threading.Event(), threading.Event()
    served = itertools.count(1)

    def slow_third(visitor: Visitor) -> None:
        if next(served) == 3:
            third_came.set()
            over.wait(30)
        chatting()(visitor)

    with serving(slow_third) as server:
        command = [Path(sys.executable).with_name("playhead"), "replay", "--trace", trace, "--target", server.url]
        how = ["--gaps", "drop", "--length", "free", "--concurrency", "1", "--json"]
        child = subprocess.Popen([*command, *how], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert third_came.wait(30)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        over.set()
    assert child.returncode == 130, err
    figures = json.loads(out)
    assert (figures["turns"], figures["failed"], figures["interrupted"], figures["not_sent"]) == (2, 0, 1, 3)
    assert b"1 turns cut off, 3 not sent" in err
    assert b"Traceback" not in err


def test_turns_that_were_sent_again_are_told(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that closes a connection at its second request."""
    answering, answered = chatting(), set[int]()

    def once(visitor: Visitor) -> None:
        if id(visitor) in answered:
            visitor.socket.shutdown(socket.SHUT_RDWR)
        else:
            answered.add(id(visitor))
            answering(visitor)

    with serving(once) as server:
        said = replayed(capsys, trace, server, "--concurrency", 1)
    assert said.code == 0
    assert "5 turns were sent again" in said.err
