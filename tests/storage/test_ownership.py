"""A trace that is recorded into is its user's alone, however wide it was, whatever the umask."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from commands import environment, playhead, serving

from storage import ownership
from storage.errors import TraceError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_others_lose_their_rights_and_it_is_said(tmp_path: Path) -> None:
    """Of the file and of what SQLite keeps beside it; the owner's own rights stay."""
    trace, wal = tmp_path / "a.trace", tmp_path / "a.trace-wal"
    for path, before in ((trace, 0o664), (wal, 0o604)):
        path.touch()
        path.chmod(before)
    told = ownership.take(str(trace))
    assert (mode(trace), mode(wal)) == (0o600, 0o600)
    assert ["0664" in told[0], "0604" in told[1], len(told)] == [True, True, 2]
    assert ownership.take(str(trace)) == []


def test_what_is_not_there_yet_is_nobodys(tmp_path: Path) -> None:
    """It is made with the right mode."""
    assert ownership.take(str(tmp_path / "none.trace")) == []


def test_another_users_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner laid it out in a shared folder, and reads all that comes in."""
    trace = tmp_path / "a.trace"
    trace.touch(mode=0o666)
    monkeypatch.setattr(os, "geteuid", lambda: trace.stat().st_uid + 1)
    with pytest.raises(TraceError, match="belongs to another user"):
        ownership.take(str(trace))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    ownership.take(str(trace))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_recorder_leaves_nothing_to_others(tmp_path: Path, umask: int) -> None:
    """A folder that it made, and every file in it while it records and afterwards."""
    folder = tmp_path / "made"
    trace = folder / "a.trace"
    script = f"import os, runpy, sys; os.umask({umask}); sys.argv[0] = 'playhead'; runpy.run_module('cli.main', run_name='__main__')"
    command = [sys.executable, "-P", "-c", script, "record", "--upstream", "http://127.0.0.1:1", "--trace", str(trace), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout
        assert process.stdout.readline()
        meanwhile = {path.name: mode(path) for path in folder.iterdir()}
        process.terminate()
    assert set(meanwhile.values()) == {0o600}
    assert "a.trace-wal" in meanwhile
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert mode(folder) == 0o700


def test_recording_into_an_open_trace_closes_it_to_others(tmp_path: Path) -> None:
    """And says so; looking at one leaves its mode alone."""
    trace = tmp_path / "a.trace"
    with serving("record", "--upstream", "http://127.0.0.1:1", "--trace", trace):
        pass
    trace.chmod(0o644)
    assert playhead("exchanges", "--trace", trace).code == 0
    assert mode(trace) == 0o644
    ended = playhead("run", "--trace", trace, "--upstream", "http://127.0.0.1:1", "--", "true")
    assert "was open to others (0644)" in ended.err
    assert mode(trace) == 0o600


def test_a_link_laid_out_for_us_is_not_followed_into_being(tmp_path: Path) -> None:
    """One that leads nowhere would have us make a file where somebody else chose."""
    trace, elsewhere = tmp_path / "a.trace", tmp_path / "elsewhere"
    trace.symlink_to(elsewhere)
    ended = playhead("run", "--trace", trace, "--upstream", "http://127.0.0.1:1", "--", "true")
    assert (ended.code, elsewhere.exists()) == (1, False)
    assert ended.tells("a.trace"), ended.err
