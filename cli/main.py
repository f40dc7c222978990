"""The entry point `playhead`: which commands there are, and how any of them ends.

Commands are imported when they are called, so that `playhead --help` costs click only. It knows no engine.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from cli import exits
from storage.errors import PlayheadError


class Listed(NamedTuple):
    """One command as the overview shows it; `where` is `module:attribute`."""

    name: str
    where: str
    summary: str
    section: str


COMMANDS: tuple[Listed, ...] = (
    Listed("demo", "cli.demo:demo", "See everything once: record, replay, compare, report.", "Start"),
    Listed("run", "cli.run:run", "Run a command and record what it says to its models.", "Record"),
    Listed("record", "cli.record:record", "Be the recording proxy until stopped.", "Record"),
    Listed("env", "cli.env:env", "Print the variables that point an agent at the recorder.", "Record"),
    Listed("sessions", "cli.sessions:sessions", "List the sessions of a trace.", "Look"),
    Listed("session", "cli.session:session", "Merge, split, name or annotate sessions.", "Look"),
    Listed("exchanges", "cli.exchanges:exchanges", "List the exchanges of a trace, in order.", "Look"),
    Listed("show", "cli.show:show", "Show one exchange, thread or session; or its exact bytes.", "Look"),
    Listed("reuse", "cli.reuse:reuse", "Account for the prompt tokens: ideal and reported reuse.", "Look"),
    Listed("report", "cli.report:report", "Write the report of a session or run.", "Look"),
    Listed("replay", "cli.replay:replay", "Play recorded sessions to a server and time it.", "Replay"),
    Listed("runs", "cli.runs:runs", "List the replays of a trace.", "Replay"),
    Listed("compare", "cli.compare:compare", "Compare two runs, session by session.", "Replay"),
    Listed("simulate", "cli.simulate:simulate", "Be a model server with a real prefix cache and known timing.", "Replay"),
    Listed("verify", "cli.verify:verify", "Rebuild every body and check it against its sha256.", "Keep"),
    Listed("reread", "cli.reread:reread", "Derive calls, sessions and threads again from the bytes.", "Keep"),
    Listed("merge", "cli.merge:merge", "Bring other traces into one.", "Keep"),
    Listed("gc", "cli.gc:gc", "Delete sessions and runs, or old ones, and give their space back.", "Keep"),
)


class Commands(click.Group):
    """The commands of `COMMANDS`, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [listed.name for listed in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        for listed in COMMANDS:
            if listed.name == cmd_name:
                return load(listed)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Writes the overview from the summaries, without importing a command."""
        for section in dict.fromkeys(listed.section for listed in COMMANDS):
            with formatter.section(section):
                formatter.write_dl([(listed.name, listed.summary) for listed in COMMANDS if listed.section == section])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            raise unknown_command(args[0])
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Runs a command and ends the interpreter with its exit code; what the user can mend is told in one line and a hint."""
        extra["standalone_mode"] = False
        try:
            if sys.stdout is None:  # closed by whoever started us
                raise PlayheadError("stdout is closed: nothing can be printed", hint="send it to /dev/null if you want none of it")
            code = super().main(list(args) if args is not None else None, prog_name or "playhead", **extra)
            sys.stdout.flush()
        except Exception as error:
            code = exits.told(error)
        sys.exit(code if isinstance(code, int) else 0)


def load(listed: Listed) -> click.Command:
    """The command itself: its module is imported here and nowhere earlier."""
    module, attribute = listed.where.split(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command


def unknown_command(name: str) -> click.UsageError:
    """What to say to a name that is no command, with those it may have meant."""
    from difflib import get_close_matches

    near = get_close_matches(name, [listed.name for listed in COMMANDS], n=3, cutoff=0.5)
    error = click.UsageError(f"there is no command '{name}'")
    error.hint = "did you mean " + " or ".join(near) + "?" if near else "see `playhead --help` for the commands"  # type: ignore[attr-defined]
    return error


@click.group(
    "playhead",
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="playhead", prog_name="playhead", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Record what an agent really says to its model, and play exactly that to other servers.

    \b
    playhead demo                                     everything once, in a minute
    playhead run -- claude -p "fix the test"          record an agent at work
    playhead replay latest --target http://gpu1:8000  play it to another server
    playhead report latest -o report.html             look at it

    Everything is kept in one trace file: --trace, else PLAYHEAD_TRACE, else the user data folder.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


if __name__ == "__main__":
    main()
