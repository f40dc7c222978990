"""`playhead merge` as a user types it."""

import json
from pathlib import Path

import pytest
import recorded_chats
from commands import playhead


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    """The second begins as the first does and goes on."""
    for name, turns in (("a", 2), ("b", 4)):
        recorded_chats.write(tmp_path / f"{name}.trace", sessions=2, turns=turns)
    return tmp_path / "a.trace", tmp_path / "b.trace"


def test_traces_become_one(traces: tuple[Path, Path], tmp_path: Path) -> None:
    into = tmp_path / "team.trace"
    found = playhead("merge", *traces, "--trace", into, "--json").document
    assert found["trace"] == str(into)
    assert [(each["trace"], each["exchanges"], each["already_there"]) for each in found["sources"]] == [
        (str(traces[0]), 4, 0),
        (str(traces[1]), 4, 4),
    ]
    listed = playhead("sessions", "--trace", into, "--json").document
    assert [(row["name"], row["turns"]) for row in listed] == [("ses_1", 4), ("ses_2", 4)]
    assert playhead("verify", "--trace", into).code == 0


def test_earlier_turns_that_come_later_stand_before_those_that_were_there(tmp_path: Path) -> None:
    recorded_chats.write(tmp_path / "whole.trace", sessions=1, turns=4)
    late, early, whole = tmp_path / "late.trace", tmp_path / "early.trace", tmp_path / "whole.trace"
    for name, turns in ((late, (3, 4)), (early, (1, 2))):
        recorded_chats.write_turns(name, [(1, turn) for turn in turns])
    playhead("merge", early, "--trace", late)
    same = ("kind", "thread", "turn", "gap_ms", "retry_of")
    rows = [[{name: row[name] for name in same} for row in _exchanges(trace)] for trace in (late, whole)]
    assert rows[0] == rows[1]


def _exchanges(trace: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(playhead("exchanges", "--trace", trace, "--json").out)
    return found


def test_what_came_is_told_on_stderr(traces: tuple[Path, Path], tmp_path: Path) -> None:
    told = playhead("merge", traces[0], "--trace", traces[1])
    assert (told.code, told.out) == (0, "")
    assert "0 exchanges, 0 runs, 4 were there already" in told.err


@pytest.mark.parametrize("wrong", ["itself", "nothing", "text"])
def test_what_cannot_be_merged_is_refused_before_anything_is_made(traces: tuple[Path, Path], tmp_path: Path, wrong: str) -> None:
    into = tmp_path / "into.trace"
    (tmp_path / "text").write_text("no trace")
    if wrong == "itself":
        (tmp_path / "link.trace").symlink_to(traces[0])
        ended = playhead("merge", traces[1], traces[0], "--trace", tmp_path / "link.trace")
        assert ended.tells("cannot be merged into itself")
    else:
        ended = playhead("merge", traces[0], tmp_path / wrong, "--trace", into)
        assert ended.tells("no trace at" if wrong == "nothing" else "is not a trace")
    assert ended.code == 1
    assert not into.exists()


def test_without_a_trace_to_merge_it_is_wrong_usage() -> None:
    assert playhead("merge").code == 2
