"""A trace that is kept small while it is recorded into."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import recorded_chats
from commands import playhead, serving

from cli import keeping
from storage import sessions
from storage.trace import Trace

LIMIT_S = 60.0


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def held(path: Path) -> list[int]:
    with Trace.open(path) as trace:
        return [row.id for row in sessions.listing(trace)]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(keeping, "FIRST_S", 0.01)
    recorded_chats.write(tmp_path / "a.trace", sessions=12, turns=6)
    return tmp_path / "a.trace"


def test_what_is_older_goes_and_is_told(path: Path) -> None:
    told: list[str] = []
    with keeping.kept_small(str(path), 3_600 * 10**9, None, tell=told.append):
        wait_for(lambda: bool(told))
    assert held(path) == []
    assert told[0].startswith("deleted 12 sessions, 0 runs, 72 exchanges: ")


def test_the_oldest_go_when_the_trace_has_outgrown_its_size(path: Path) -> None:
    told: list[str] = []
    size = path.stat().st_size - 8_192
    with keeping.kept_small(str(path), None, size, tell=told.append):
        wait_for(lambda: bool(told))
    assert path.stat().st_size <= size
    assert 0 < len(held(path)) < 12


def test_nothing_is_done_to_a_trace_that_is_small_enough(path: Path) -> None:
    told: list[str] = []
    before = threading.active_count()
    with keeping.kept_small(str(path), None, None, tell=told.append):
        assert threading.active_count() == before
    with keeping.kept_small(str(path), None, 10**9, tell=told.append):
        time.sleep(0.1)
    assert (told, len(held(path))) == ([], 12)


def test_what_goes_wrong_is_told(path: Path) -> None:
    told: list[str] = []
    with keeping.kept_small(str(path), None, 1_000, tell=told.append):
        wait_for(lambda: bool(told))
    assert told[0].startswith("the trace could not be kept small: a trace that holds nothing takes")


def test_an_end_meanwhile_is_waited_for_no_longer_than_it_takes(path: Path) -> None:
    told: list[str] = []
    with keeping.kept_small(str(path), 10**9, None, tell=told.append):
        time.sleep(0.3)  # the child is on its way
    assert told == []
    assert playhead("verify", "--trace", path).code == 0


def test_a_recorder_keeps_its_trace_small(path: Path) -> None:
    with serving("record", "--upstream", "http://127.0.0.1:9", "--trace", path, "--keep-for", "1h") as (process, _):
        wait_for(lambda: not held(path))
        process.terminate()
        said = process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 0
    assert "NOT RECORDED" not in said
