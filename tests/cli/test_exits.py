"""How commands end that did not succeed: the line, the hint, the exit code."""

import errno
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from cli import exits
from cli.main import Commands
from storage import database
from storage.errors import NotFoundError, PlayheadError, StorageFullError, VerdictError


def ending(error: BaseException) -> Commands:
    """A command line whose one command ends with `error`."""
    group = Commands("playhead")

    @click.command()
    def command() -> None:
        raise error

    group.get_command = lambda ctx, cmd_name: command  # type: ignore[method-assign]
    group.list_commands = lambda ctx: ["command"]  # type: ignore[method-assign]
    return group


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PlayheadError("it is wrong", hint="do this"), 1, "error: it is wrong\nhint: do this\n"),
        (NotFoundError("no session s9"), 1, "error: no session s9\n"),
        (PlayheadError("two\nlines"), 1, "error: two lines\n"),
        (VerdictError("ttft_ms grew"), 3, "error: ttft_ms grew\n"),
        (KeyboardInterrupt(), 130, "\ninterrupted\n"),
        (click.UsageError("no such thing"), 2, "error: no such thing\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "error: the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1, "error: the disk is full"),
    ],
)
def test_what_the_user_can_mend_is_told_in_one_line(error: BaseException, code: int, said: str) -> None:
    """The message and the hint on stderr, nothing on stdout, and the contract's exit code."""
    done = CliRunner().invoke(ending(error), ["command"])
    assert done.exit_code == code
    assert done.stderr.startswith(said)
    assert done.stdout == ""


def test_a_full_disk_is_found_beneath_other_errors() -> None:
    """SQLite's own error, wrapped by whatever stands between, is told as a full disk."""
    full = sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    wrapped = RuntimeError("(sqlite3.OperationalError) database or disk is full")
    wrapped.__cause__ = full
    assert isinstance(exits.storage_full(wrapped), StorageFullError)
    assert exits.storage_full(RuntimeError("another")) is None
    assert exits.storage_full(sqlite3.OperationalError("database is locked")) is None


@pytest.mark.parametrize(
    ("code", "words", "said"),
    [
        (sqlite3.SQLITE_BUSY, "database is locked", "error: the trace is locked by another program\nhint: "),
        (sqlite3.SQLITE_READONLY, "attempt to write", "error: the trace cannot be written: it is read-only\nhint: "),
        (sqlite3.SQLITE_CORRUPT, "malformed", "error: the trace is damaged: malformed\nhint: "),
        (sqlite3.SQLITE_ERROR, "no such table: calls", "error: the trace is damaged: no such table: calls\nhint: "),
        (sqlite3.SQLITE_IOERR, "disk I/O error", "error: the trace cannot be read or written: disk I/O error\nhint: "),
    ],
)
def test_what_the_database_says_is_told_of_the_trace(code: int, words: str, said: str) -> None:
    """From wherever it comes, in one line with a hint."""
    original = sqlite3.OperationalError(words)
    original.sqlite_errorcode = code
    wrapped = sa.exc.OperationalError("SELECT 1", {}, original)
    wrapped.__cause__ = original
    done = CliRunner().invoke(ending(wrapped), ["command"])
    assert done.exit_code == 1
    assert done.stderr.startswith(said)


def test_a_wrong_statement_is_a_bug() -> None:
    """It says nothing of the trace."""
    assert database.explained(sqlite3.OperationalError("near SELEC: syntax error")) is None
    assert exits.trace_error(RuntimeError("another")) is None


def test_a_bug_shows_its_traceback() -> None:
    """What the user cannot mend is not dressed up as their mistake."""
    done = CliRunner().invoke(ending(ZeroDivisionError("a bug")), ["command"])
    assert isinstance(done.exception, ZeroDivisionError)


def test_a_commands_number_is_its_exit_code() -> None:
    """`run` passes on its child's exit code by returning it."""
    group = ending(AssertionError())
    group.get_command = lambda ctx, cmd_name: click.Command("command", callback=lambda: 42)  # type: ignore[method-assign]
    assert CliRunner().invoke(group, ["command"]).exit_code == 42


def test_a_reader_that_left_is_no_news() -> None:
    """`playhead ... | head -1` ends without a word, also when the pipe breaks only at the end."""
    program = "import sys; sys.argv = ['playhead', '--help']; from cli.main import main; main()"
    done = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.stdout is not None
    done.stdout.close()
    _, said = done.communicate(timeout=60)
    assert said == ""
    assert done.returncode == 1


def test_a_full_stdout_is_not_the_traces_disk() -> None:
    """What is said is about where the output goes."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = f'"{sys.executable}" -P -m cli.main --help'
    done = subprocess.run(["/bin/sh", "-c", f"{command} > /dev/full"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: stdout takes no more: no space left on device\nhint: ")
    assert "--trace" not in done.stderr
    assert len(done.stderr.splitlines()) == 2
