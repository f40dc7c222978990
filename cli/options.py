"""The options that commands share, and how they open their trace."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from storage.trace import Trace

trace_option = click.option(
    "--trace",
    metavar="FILE|URL",
    envvar="PLAYHEAD_TRACE",
    help="The trace to use: a file or a postgresql:// URL. [PLAYHEAD_TRACE; else the user data folder]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")


def open_trace(trace: str | None, *, create: bool = False) -> "Trace":
    """The trace named on the command line, or the default one. Raises TraceError."""
    from storage.trace import Trace, default_location

    return Trace.open(trace or default_location(), create=create)
