"""`playhead run -- CMD...`: runs a command and records everything it says to its models."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from cli import console, ending, keeping, options
from storage.records import REDACTED

if TYPE_CHECKING:
    from storage.trace import Trace
    from tracer.addon import Recorder
    from tracer.proxy import Listener
    from tracer.recipes import Pointing


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--upstream", "given", multiple=True, metavar="URL", help="Where to send requests. [the three big providers]")
@options.allow_host_option
@options.secret_path_option
@click.option("--quiet", "-q", is_flag=True, help="Say only what goes wrong.")
@keeping.options
@options.trace_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_context
def run(
    context: click.Context,
    *,
    given: tuple[str, ...],
    names: tuple[str, ...],
    secret_path: str | None,
    quiet: bool,
    keep_for: int | None,
    keep_within: int | None,
    trace: str | None,
    command: tuple[str, ...],
) -> None:
    """Run a command and record everything it says to its models.

    The command gets the terminal, its signals and its exit code as without playhead. Known agents (Claude Code, Codex, opencode, aider,
    mini-swe-agent, Gemini CLI, Qwen Code) are pointed at the recorder each in its own way, without touching your configuration; any other
    command gets the usual base-URL variables. What was set is said on stderr.

    \b
    Example: playhead run -- claude -p "fix the failing test"
    """
    import os

    from tracer import child, upstreams

    with options.usage():
        wanted = upstreams.chosen(given)
    allowed, secret = options.allowed_names(names), options.secret_path(secret_path)
    child.check(command[0], os.environ.get("PATH"))
    with options.open_trace(trace, create=True) as opened:
        import asyncio

        from tracer.proxy import Settings
        from tracer.recording import record

        async def until_ended(listeners: "tuple[Listener, ...]", recorder: "Recorder") -> "Ran":
            return await _child(command, listeners, recorder, say=_silent if quiet else _tell, secret=secret)

        with keeping.kept_small(opened.location, keep_for, keep_within, tell=_tell):
            ran = asyncio.run(record(opened, Settings(upstreams=wanted, names=allowed, secret=secret), until_ended, tell=_tell))
        assert ran
        if not quiet:
            _say_what_was_recorded(opened, ran, command, is_default=trace is None or trace == os.environ.get("PLAYHEAD_TRACE"))
    context.exit(ran.code)


class Ran(NamedTuple):
    """A command that has ended: its process id, when it was started (Unix-epoch ns), its exit code."""

    pid: int
    since_ns: int
    code: int


async def _child(
    command: Sequence[str], listeners: "tuple[Listener, ...]", recorder: "Recorder", *, say: Callable[[str], None], secret: str | None
) -> Ran:
    """The command, pointed at the listeners, from its start to its end."""
    import os
    import time

    from tracer import recipes
    from tracer.child import Child

    found = recipes.pointing(command, recipes.bases([(each.url, each.upstream) for each in listeners]), os.environ)
    say(_what_was_set(command, found, secret))
    since_ns = time.time_ns()
    child = Child(recipes.with_arguments(command, found.arguments), {**os.environ, **dict(found.variables)})
    recorder.client(child.pid, command)
    return Ran(child.pid, since_ns, await child.ended())


def _what_was_set(command: Sequence[str], found: "Pointing", secret: str | None) -> str:
    """Names and values, but for secrets; a configuration is shown by its name."""
    from tracer.recipes import agent_of
    from tracer.redaction import masked

    def shown(value: str) -> str:
        return console.plain(masked(value.replace(secret, REDACTED) if secret else value))

    variables = [name if value.startswith("{") else f"{name}={shown(value)}" for name, value in found.variables if name != "no_proxy"]
    return f"recording {agent_of(command) or console.plain(masked(command[0]))}; set {' '.join([*variables, *map(shown, found.arguments)])}"


_MOST_READ = 20_000
"""In a trace with more exchanges than this the summary does not wait for a reader to go through them."""


def _say_what_was_recorded(trace: "Trace", ran: Ran, command: tuple[str, ...], *, is_default: bool) -> None:
    from storage import outcomes
    from tracer import reading

    if outcomes.count(trace) <= _MOST_READ:
        reading.catch_up(trace)
    outcome = outcomes.of_command(trace, ran.pid, ran.since_ns)
    for line in ending.lines(outcome, trace.location, program=ending.program_of(command), code=ran.code, is_default=is_default):
        _tell(line)


def _silent(text: str) -> None:
    """Says nothing."""


def _tell(text: str) -> None:
    console.say(f"playhead: {console.plain(text)}")
