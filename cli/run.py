"""`playhead run -- CMD...`: runs a command and records everything it says to its models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cli import console, options

if TYPE_CHECKING:
    from tracer.addon import Recorder
    from tracer.proxy import Listener
    from tracer.recipes import Pointing


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--upstream", "given", multiple=True, metavar="URL", help="Where to send requests. [the three big providers]")
@options.trace_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.pass_context
def run(context: click.Context, given: tuple[str, ...], trace: str | None, command: tuple[str, ...]) -> None:
    """Run a command and record everything it says to its models.

    The command gets the terminal, its signals and its exit code as without playhead. Known agents (Claude Code, Codex, opencode, aider,
    mini-swe-agent, Gemini CLI, Qwen Code) are pointed at the recorder each in its own way, without touching your configuration; any other
    command gets the usual base-URL variables. What was set is said on stderr.

    \b
    Example: playhead run -- claude -p "fix the failing test"
    """
    from tracer import upstreams

    wanted = upstreams.chosen(given)
    with options.open_trace(trace, create=True) as opened:
        import asyncio

        from tracer.proxy import Settings
        from tracer.recording import record

        async def until_ended(listeners: "tuple[Listener, ...]", recorder: "Recorder") -> int:
            return await _child(command, listeners, recorder)

        code = asyncio.run(record(opened, Settings(upstreams=wanted), until_ended, tell=_tell))
    context.exit(code or 0)


async def _child(command: Sequence[str], listeners: "tuple[Listener, ...]", recorder: "Recorder") -> int:
    """The command, pointed at the listeners, from its start to its end; its exit code."""
    import os

    from tracer import recipes
    from tracer.child import Child

    found = recipes.pointing(command, recipes.bases([(each.url, each.upstream) for each in listeners]), os.environ)
    _say_what_was_set(command, found)
    child = Child(recipes.with_arguments(command, found.arguments), {**os.environ, **dict(found.variables)})
    recorder.client(child.pid, command)
    return await child.ended()


def _say_what_was_set(command: Sequence[str], found: "Pointing") -> None:
    from tracer.recipes import agent_of

    shown = [f"{name}={console.plain(value)}" for name, value in found.variables if name != "no_proxy"] + list(found.arguments)
    console.say(f"playhead: recording {agent_of(command) or console.plain(command[0])}; set {' '.join(shown)}")


def _tell(text: str) -> None:
    console.say(f"playhead: {console.plain(text)}")
