"""What users get wrong, through the real command: one line that says so, a hint, the right exit code, and nothing lost."""

import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import recorded_chats
from commands import playhead, serving


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of two sessions with three turns each."""
    path = tmp_path_factory.mktemp("recorded") / "a.trace"
    recorded_chats.write(path)
    return path


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def closed_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def exchanges(trace: Path) -> int:
    """How many recorded exchanges the trace holds."""
    return len(playhead("exchanges", "--trace", trace, "--json").document)


ROOM_BYTES = 100_000
"""Enough to open a trace (32 kB of it for SQLite's shared memory), not for what a replay stores."""

READERS = ("sessions", "exchanges", "reuse", "runs", "verify", "reread", "report")


@pytest.mark.parametrize("command", READERS)
def test_a_trace_that_is_not_there(command: str, tmp_path: Path) -> None:
    """It is named, no empty file is left in its place."""
    done = playhead(command, "--trace", tmp_path / "absent.trace")
    assert done.code == 1
    assert done.tells("absent.trace")
    assert list(tmp_path.iterdir()) == []


CONTENTS = {"text": b"not a trace at all\n" * 300, "empty": b"", "damaged": b"SQLite format 3\0" + b"\xff" * 4000}


COMMANDS = ("sessions", "replay --target http://127.0.0.1:9", "record --listen 127.0.0.1:0")


@pytest.mark.parametrize(("command", "content"), [pair for pair in product(COMMANDS, CONTENTS) if pair != (COMMANDS[2], "empty")])
def test_a_file_that_is_not_a_trace(command: str, content: str, tmp_path: Path) -> None:
    """Text, an empty file and a damaged database are refused, and left as they are. (Only `record` may fill an empty file.)"""
    path = tmp_path / "notes.txt"
    path.write_bytes(CONTENTS[content])
    done = playhead(*command.split(), "--trace", path)
    assert done.code == 1, done.err
    assert done.tells("notes.txt")
    assert path.read_bytes() == CONTENTS[content]


def test_a_database_of_somebody_else(tmp_path: Path) -> None:
    """Another program's SQLite file is not written into."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("create table mine (x)")
    database.close()
    before = path.read_bytes()
    done = playhead("sessions", "--trace", path)
    assert done.code == 1
    assert done.tells("other.db")
    assert path.read_bytes() == before


def test_a_trace_of_a_newer_playhead(trace: Path, tmp_path: Path) -> None:
    """What a newer version wrote is refused with the way out, not read wrongly."""
    path = tmp_path / "newer.trace"
    path.write_bytes(trace.read_bytes())
    with sqlite3.connect(path) as database:
        database.execute("update alembic_version set version_num = '9999_from_the_future'")
    database.close()
    done = playhead("sessions", "--trace", path)
    assert done.code == 1
    assert done.tells("newer")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("exchanges", "s99"), "s99"),
        (("show", "e999"), "e999"),
        (("reuse", "no-such-session"), "no-such-session"),
        (("report", "r7"), "r7"),
        (("compare", "r1", "r2"), "r1"),
        (("replay", "s99", "--target", "http://127.0.0.1:9"), "s99"),
    ],
)
def test_ids_that_the_trace_does_not_hold(arguments: tuple[str, ...], word: str, trace: Path) -> None:
    """The id is named, and what there is instead."""
    done = playhead(*arguments, "--trace", trace)
    assert done.code == 1
    assert done.tells(word)


@pytest.mark.parametrize("target", ["closed port", "http://no-such-host.invalid:80", "ftp://127.0.0.1", "::::"])
def test_a_target_that_cannot_be_reached(target: str, trace: Path) -> None:
    """No run is left behind that looks as if something had been measured."""
    url = f"http://127.0.0.1:{closed_port()}" if target == "closed port" else target
    done = playhead("replay", "--target", url, "--trace", trace)
    assert done.code == (2 if target in ("ftp://127.0.0.1", "::::") else 1)  # no URL of a server at all is wrong usage
    assert done.tells()
    assert playhead("runs", "--trace", trace, "--json").document == []


def test_a_wrong_key(trace: Path, tmp_path: Path) -> None:
    """All turns fail with 401, which is said with the option that gives the key; the key is nowhere in the trace."""
    path = tmp_path / "key.trace"
    path.write_bytes(trace.read_bytes())
    with serving("simulate", "--api-key", "the-right-key") as (_, url):
        done = playhead("replay", "--target", url, "--key-env", "MY_KEY", "--trace", path, MY_KEY="sk-the-wrong-key-1234")
        right = playhead("replay", "--target", url, "--key-env", "MY_KEY", "--trace", path, "--json", MY_KEY="the-right-key")
    assert done.code == 1
    assert "6 of 6 turns failed: 6 x status 401" in done.err
    assert "--key-env" in done.err
    assert (right.code, right.document["failed"]) == (0, 0)
    assert b"the-wrong-key" not in path.read_bytes()
    assert playhead("replay", "--target", url, "--key-env", "NOT_SET", "--trace", path).tells("NOT_SET")


@pytest.mark.parametrize("command", ["record", "simulate"])
def test_a_port_that_is_taken(command: str, taken: int, tmp_path: Path) -> None:
    """The port is named, and the way to another."""
    more = ("--upstream", "http://127.0.0.1:9", "--trace", tmp_path / "a.trace") if command == "record" else ()
    done = playhead(command, "--listen", f"127.0.0.1:{taken}", *more)
    assert done.code == 1, done.err
    assert done.tells(str(taken))
    assert len(done.err.splitlines()) == 2


@pytest.mark.parametrize("arguments", ["record --upstream ::", "record --listen nowhere", "simulate --listen nowhere"])
def test_addresses_that_are_none(arguments: str, tmp_path: Path) -> None:
    """Wrong usage or a mendable error, one line either way."""
    done = playhead(*arguments.split(), PLAYHEAD_TRACE=str(tmp_path / "a.trace"))
    assert done.code in (1, 2)
    assert done.tells()


def test_running_what_is_no_program(tmp_path: Path) -> None:
    """The exit code is a shell's."""
    (tmp_path / "text").write_text("no program")
    done = playhead("run", "--trace", tmp_path / "a.trace", "--", tmp_path / "text")
    assert done.code == 126
    assert done.tells("cannot start")


def test_running_a_command_that_does_not_exist(tmp_path: Path) -> None:
    """A line that names it, and no trace of nothing."""
    done = playhead("run", "--trace", tmp_path / "a.trace", "--", "no-such-program-at-all")
    assert done.code == 127
    assert done.tells("no-such-program-at-all")
    assert not (tmp_path / "a.trace").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 600 kB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", place], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no right to mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_full_disk_ends_a_replay_with_what_it_had(trace: Path, small_disk: Path) -> None:
    """One line says that the disk is full; what was in the trace is still there and whole."""
    path = small_disk / "a.trace"
    path.write_bytes(trace.read_bytes())
    room = shutil.disk_usage(small_disk).free - ROOM_BYTES
    (small_disk / "ballast").write_bytes(b"\0" * room)
    with serving("simulate", "--decode-tps", "100000", "--base-ms", "0") as (_, url):
        done = playhead("replay", "--target", url, "--copies", "20", "--trace", path)
    assert done.code == 1, done.err
    assert done.tells("disk is full")
    (small_disk / "ballast").unlink()
    assert exchanges(path) == 6
    assert playhead("verify", "--trace", path).code == 0
