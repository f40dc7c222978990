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


allow_host_option = click.option(
    "--allow-host", "names", multiple=True, metavar="NAME", help="A name clients may ask for beside addresses and localhost."
)
secret_path_option = click.option(
    "--secret-path",
    metavar="[SECRET]",
    envvar="PLAYHEAD_SECRET_PATH",
    is_flag=False,
    flag_value="",
    help="Answer only below /k/SECRET/. Without SECRET one is made; it can stand in PLAYHEAD_SECRET_PATH.",
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


def allowed_names(given: tuple[str, ...]) -> frozenset[str]:
    """The names that clients may ask for. Raises WrongUsageError for what is none."""
    from tracer import admission

    try:
        return frozenset(map(admission.allowed_name, given))
    except ValueError as wrong:
        raise WrongUsageError(str(wrong), "give it without scheme and port, e.g. host.docker.internal") from None


def secret_path(given: str | None) -> str | None:
    """The secret below which alone the listeners answer: that given, a new one for an empty one, or None for none."""
    import secrets

    from tracer import admission

    if given is not None and given and not admission.is_secret(given):
        raise WrongUsageError(
            "what is given as secret path is none", f"take {admission.FEWEST_SECRET_CHARACTERS} to 200 letters, digits and - . _ ~"
        )
    return given or (None if given is None else secrets.token_urlsafe(24))


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")


def open_trace(trace: str | None, *, create: bool = False) -> "Trace":
    """The trace named on the command line, or the default one. `create`: to record into; it is made the user's alone. Raises TraceError."""
    from cli import console
    from storage import ownership
    from storage.trace import Trace, default_location

    location = trace or default_location()
    for line in ownership.take(location) if create else ():
        console.say(f"playhead: {console.plain(line)}")
    return Trace.open(location, create=create)
