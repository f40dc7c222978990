"""How a command ends that did not succeed: which lines are told, which exit code is given.

1 something the user can mend, 2 wrong usage, 3 a failed verdict, 130 Ctrl-C. Anything else is a bug and shows its traceback.
"""

import errno
import os
import sys

import click

from cli.console import say, tint
from storage.errors import PlayheadError, StorageFullError

INTERRUPTED = 130
SQLITE_FULL = 13
PRINTING = ("click.utils", "cli.main", "__main__", "cli.show")


def told(error: Exception) -> int:
    """Tells the user what `error` means and gives the exit code; an error that is a bug is raised again."""
    if isinstance(error, click.Abort):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return broken_pipe()
    if isinstance(error, OSError) and was_printing(error):
        tell(f"stdout takes no more: {(error.strerror or str(error)).lower()}", "free some space where it goes, or send it elsewhere")
        return broken_pipe()
    if isinstance(error, click.ClickException):
        tell(error.format_message(), getattr(error, "hint", None) or usage_hint(error))
        return error.exit_code
    known = storage_full(error) or trace_error(error) or error
    if not isinstance(known, PlayheadError):
        raise error
    tell(str(known), known.hint)
    return known.exit_code


def tell(message: str, hint: str | None) -> None:
    """One line that says what is wrong, and one that says what to do."""
    say(f"{tint('error:', 'red', sys.stderr)} {' '.join(message.split())}")
    if hint:
        say(f"{tint('hint:', 'cyan', sys.stderr)} {hint}")


def usage_hint(error: click.ClickException) -> str | None:
    """Where to read on after a usage error."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"see `{context.command_path} --help`" if context else None


def storage_full(error: BaseException) -> StorageFullError | None:
    """The error as `StorageFullError` when a full disk or quota lies beneath it, however deep."""
    beneath: BaseException | None = error
    while beneath is not None and not isinstance(beneath, PlayheadError):
        full = isinstance(beneath, OSError) and beneath.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or getattr(beneath, "sqlite_errorcode", None) == SQLITE_FULL:
            return StorageFullError(
                "the disk is full: what was stored before is kept", hint="free some space, or choose another place with --trace"
            )
        beneath = beneath.__cause__ or beneath.__context__
    return None


def trace_error(error: BaseException) -> PlayheadError | None:
    """The error as what it says of the trace, when it came from the database; SQLAlchemy is only here when it was in use."""
    if isinstance(error, PlayheadError) or "storage.database" not in sys.modules:
        return None
    from storage import database

    return database.explained(error)


def was_printing(error: BaseException) -> bool:
    """Whether the error was raised by a write to stdout itself: these modules write to nothing else."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and place.tb_frame.f_globals.get("__name__") in PRINTING


def broken_pipe() -> int:
    """The reader of our output has gone (`| head`): nothing is said, and nothing more is written when the interpreter ends."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
    return 1
