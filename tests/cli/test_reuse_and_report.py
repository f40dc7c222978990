"""`reuse` and `report` as their user meets them."""

import json
from pathlib import Path
from typing import Any

import pytest
from reuse_traces import body, count, exchange, record, replay

from cli.main import main
from storage.trace import Trace


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """A recorded session of four turns and two replays of it; the second server reports less."""
    path = tmp_path / "recorded.trace"
    with Trace.open(path, create=True) as trace:
        record(trace, [exchange(turn, body(turn), None) for turn in range(1, 5)])
        for number, share in enumerate((1.0, 0.5), 1):
            cached = [0, *(int(share * count(body(turn))) // 16 * 16 for turn in range(1, 4))]
            replay(trace, [exchange(turn, body(turn), cached[turn - 1], start_s=100 * number + turn) for turn in range(1, 5)])
    return path


def say(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[Any, str, str]:
    """Exit code, stdout, stderr of a command run in this interpreter."""
    with pytest.raises(SystemExit) as ended:
        main([str(arg) for arg in args])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_the_ledger_as_json(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The contract's keys; turns that sum to the totals; predicted equals what a server with these rules reported."""
    code, out, _ = say(capsys, "reuse", "r1", "--rules", "vllm", "--json", "--trace", where)
    assert code == 0
    ledger = json.loads(out)
    assert {"prompt_tokens", "ideal", "predicted", "reported", "reported_coverage", "lost", "excess", "broken"} <= ledger["totals"].keys()
    wanted = {"exchange", "session", "thread", "turn", "prompt_tokens", "ideal", "predicted", "reported", "lost", "cause", "at"}
    assert all(wanted <= turn.keys() for turn in ledger["turns"])
    assert len(ledger["turns"]) == 4
    assert ledger["totals"]["reported"] == sum(turn["reported"] for turn in ledger["turns"])
    assert ledger["totals"]["reported_coverage"] == 1
    assert ledger["rules"] == "vllm, block 16"


def test_not_reported_stays_null(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recorded server said nothing: null in every turn and in the sum, coverage 0, no predicted without rules."""
    _, out, _ = say(capsys, "reuse", "--json", "--trace", where)
    ledger = json.loads(out)
    assert [turn["reported"] for turn in ledger["turns"]] == [None] * 4
    assert (ledger["totals"]["reported"], ledger["totals"]["reported_coverage"], ledger["totals"]["predicted"]) == (None, 0, None)
    assert ledger["rules"] is None


def test_the_ledger_in_a_terminal(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a turn, a sum, a sentence; 80 columns."""
    _, out, _ = say(capsys, "reuse", "r2", "--rules", "vllm", "--capacity", "100000", "--ttl", "600", "--trace", where)
    lines = out.splitlines()
    assert lines[0].split()[0] == "id"
    assert max(map(len, lines)) <= 80
    assert lines[5].startswith("all")
    assert "under the rules of vllm, block 16, capacity 100,000, TTL 600 s" in " ".join(lines)


def test_limits_without_rules(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage, with what to do."""
    code, _, err = say(capsys, "reuse", "--capacity", "4096", "--trace", where)
    assert code == 2
    assert "--rules" in err
    assert say(capsys, "report", "--block", "4096", "--trace", where)[0] == 2


def test_unknown_rules(where: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and the names there are."""
    code, _, err = say(capsys, "reuse", "--rules", "made-up", "--trace", where)
    assert code == 2
    assert "hint: use one of: vllm, llama_cpp" in err


def test_an_html_report_of_two_runs(where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file, for its owner only, with the comparison; what was written is said on stderr."""
    page = tmp_path / "report.html"
    code, out, err = say(capsys, "report", "r1", "r2", "-o", page, "--rules", "vllm", "--trace", where)
    assert (code, out) == (0, "")
    assert str(page) in err
    assert page.stat().st_mode & 0o777 == 0o600
    text = page.read_text()
    assert "r2 against r1" in text
    assert "prefers-color-scheme" in text


def test_the_format_follows_the_name(where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """.md, .csv, .json, .txt; --format beats it; stdout without -o."""
    for name, begins in (("r.md", "# "), ("r.csv", "subject,"), ("r.json", "{"), ("r.txt", "PLAYHEAD REPORT")):
        say(capsys, "report", "latest", "-o", tmp_path / name, "--trace", where)
        assert (tmp_path / name).read_text().startswith(begins)
    _, out, _ = say(capsys, "report", "s1", "--trace", where)
    assert out.startswith("PLAYHEAD REPORT")
    _, out, _ = say(capsys, "report", "--json", "--trace", where)
    assert json.loads(out)["subjects"][0]["kind"] == "recording"


def test_a_report_that_cannot_be_written(where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with a hint."""
    code, _, err = say(capsys, "report", "r1", "-o", tmp_path / "no" / "such" / "folder.html", "--trace", where)
    assert code == 1
    assert "cannot be written" in err
    assert "hint:" in err


def test_runs_that_cannot_be_compared(where: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report of two runs that played different things says why it compares nothing, and shows each."""
    with Trace.open(where) as trace:
        replay(trace, [exchange(1, body(1), 0, start_s=900)], settings={"plan": {"sha256": "other", "sessions": 1, "turns": 1}})
    _, out, _ = say(capsys, "report", "r1", "r3", "--trace", where)
    assert "No comparison: these runs cannot be compared" in out
