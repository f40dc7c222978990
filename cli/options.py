"""The options that commands share, and how they open their trace."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from storage.trace import Trace

trace_option = click.option(
    "--trace",
    metavar="FILE",
    envvar="PLAYHEAD_TRACE",
    help="The trace file to use. [PLAYHEAD_TRACE; else the user data folder]",
)


class WrongUsageError(click.UsageError):
    """Wrong usage with a hint of its own."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.hint = hint


@contextmanager
def usage() -> Iterator[None]:
    """Around what reads the command line's words: what an engine refuses of them is wrong usage (exit 2)."""
    from storage.errors import PlayheadError

    try:
        yield
    except PlayheadError as error:
        raise WrongUsageError(str(error), error.hint) from error


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")


def open_trace(trace: str | None, *, create: bool = False) -> "Trace":
    """The trace named on the command line, or the default one. Raises TraceError."""
    from storage.trace import Trace, default_location

    return Trace.open(trace or default_location(), create=create)
