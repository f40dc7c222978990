"""Files written with -o: what stands there already is treated with care, and a bad place is refused before the work."""

import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from commands import PLAYHEAD, environment, playhead

from cli import output
from storage.errors import PlayheadError


def mode(path: Path) -> int:
    """Its permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_of_ours_becomes_private(tmp_path: Path) -> None:
    """New or there before, longer than what is written or not."""
    path = tmp_path / "old.txt"
    path.write_text("a longer text than the new one")
    path.chmod(0o644)
    for each in (path, tmp_path / "new.txt"):
        output.write(each, "é")
        assert each.read_text(encoding="utf-8") == "é"
        assert mode(each) == 0o600


def test_what_is_no_file_keeps_its_mode(tmp_path: Path) -> None:
    """A pipe, and so a device: other programs share it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o644)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        output.write(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert mode(pipe) == 0o644


def test_a_full_device_is_told() -> None:
    """In one line, and its mode is as before."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    before = mode(full)
    with pytest.raises(PlayheadError, match="cannot be written to /dev/full") as caught:
        output.write(full, "text")
    assert caught.value.hint
    assert mode(full) == before


def test_a_demo_refuses_a_bad_place_first(tmp_path: Path) -> None:
    """No folder, a file in a folder's place, no name at all: nothing is started and nothing is left behind."""
    (tmp_path / "file").touch()
    for bad in ("no/such/x.html", "file/x.html"):
        done = playhead("demo", "-o", bad, cwd=tmp_path)
        assert (done.code, done.tells("cannot be written to")) == (1, True), done.err
        assert "$ playhead" not in done.err
    for command in ("demo", "report"):
        done = playhead(command, "-o", "", cwd=tmp_path)
        assert (done.code, done.tells("empty name")) == (2, True), done.err
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_demo_where_no_folder_can_be_made() -> None:
    """One line with a hint."""
    if not Path("/proc/self").exists():
        pytest.skip("this system has no /proc, where nobody can make a folder")
    assert playhead("demo", cwd="/proc").tells("cannot make the folder demo-output")


@pytest.mark.parametrize("there", [False, True])
def test_an_interrupted_demo_takes_its_folder_along(tmp_path: Path, there: bool) -> None:
    """The folder that it made; one that was there before stays."""
    folder = tmp_path / "demo-output"
    if there:
        folder.mkdir()
    demo = subprocess.Popen([*PLAYHEAD, "demo"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    deadline = time.monotonic() + 30
    while not (folder / "demo.trace").exists():
        assert time.monotonic() < deadline, "the demo never began"
        time.sleep(0.02)
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=30)
    assert b"Traceback" not in err
    assert demo.returncode == 130
    assert folder.exists() == there
