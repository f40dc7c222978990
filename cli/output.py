"""Files that commands write for their user with -o: checked before the work begins, readable by their owner alone.

It does not know what is in them. Whatever stands there that is no file of the user's own (a device, a pipe) keeps its mode.
"""

import os
import stat
from pathlib import Path

import click

from storage.errors import PlayheadError

HINT = "give another file with -o"


def named(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:  # noqa: ARG001 - click's signature
    """The callback of an -o option: an empty name is wrong usage (a Path of nothing is the current folder)."""
    if value is not None and value == Path():
        raise click.BadParameter("an empty name is no file")
    return value


def check(path: Path) -> None:
    """Raises PlayheadError when `path` cannot be written, without making or changing anything."""
    place = path if path.exists() else path.parent
    if not place.exists():
        raise _refused(path, f"there is no folder {place}")
    if place != path and not place.is_dir():
        raise _refused(path, f"{place} is no folder")
    if not os.access(place, os.W_OK):
        raise _refused(path, f"{place} may not be written to")


def write(path: Path, text: str) -> None:
    """Writes `text`; a regular file of ours gets mode 0600 before anything is in it. Raises PlayheadError."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                os.fchmod(handle, 0o600)
            file.write(text)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error


def _refused(path: Path, why: str) -> PlayheadError:
    return PlayheadError(f"the report cannot be written to {path}: {why}", hint=HINT)
