"""`playhead gc` as a user types it."""

from pathlib import Path

import pytest
import recorded_chats
from commands import playhead


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "a.trace"
    recorded_chats.write(path, sessions=3)
    return path


def test_sessions_go_by_name_with_the_space_they_took(trace: Path) -> None:
    rehearsed = playhead("gc", "s1", "s2", "--dry-run", "--trace", trace, "--json").document
    assert [row["id"] for row in playhead("sessions", "--trace", trace, "--json").document] == ["s1", "s2", "s3"]
    done = playhead("gc", "s1", "s2", "--trace", trace, "--json").document
    same = ("sessions", "runs", "exchanges", "bodies", "nodes", "elements", "in_use", "bytes_before")
    assert {name: rehearsed[name] for name in same} == {name: done[name] for name in same}
    assert (done["sessions"], done["exchanges"], done["in_use"]) == (["s1", "s2"], 6, [])
    assert done["bytes_after"] == trace.stat().st_size <= done["bytes_before"]
    assert [row["id"] for row in playhead("sessions", "--trace", trace, "--json").document] == ["s3"]
    assert playhead("verify", "--trace", trace).code == 0


def test_old_sessions_go_and_it_says_so(trace: Path) -> None:
    told = playhead("gc", "--older-than", "1h", "--trace", trace)
    assert (told.code, told.out) == (0, "")
    assert "deleted 3 sessions, 0 runs, 9 exchanges" in told.err
    assert playhead("sessions", "--trace", trace, "--json").document == []


def test_without_a_wish_only_what_nothing_refers_to_goes(trace: Path) -> None:
    assert "deleted 0 sessions, 0 runs, 0 exchanges" in playhead("gc", "--trace", trace).err


def test_a_small_enough_trace_stays_as_it_is(trace: Path) -> None:
    assert playhead("gc", "--max-size", "1GB", "--trace", trace, "--json").document["sessions"] == []


@pytest.mark.parametrize("typed", ["30", "d", "0d", "-3d", "3 parsecs", "1e3d"])
def test_what_is_no_age_is_wrong_usage(trace: Path, typed: str) -> None:
    ended = playhead("gc", f"--older-than={typed}", "--trace", trace)
    assert ended.code == 2
    assert ended.tells("is no age", "12h or 30d")


def test_a_session_that_is_not_there_is_told(trace: Path) -> None:
    ended = playhead("gc", "s9", "--trace", trace)
    assert ended.code == 1
    assert ended.tells("there is no session or run 's9'")
