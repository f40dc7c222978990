"""`playhead env`: what to set so that an agent speaks to a recorder that is already running."""

import os
import shlex

import click

from cli import console, options


@click.command()
@click.argument("agent", metavar="AGENT")
@click.option("--url", required=True, metavar="URL", help="The address that `playhead record` printed.")
@options.json_option
def env(agent: str, url: str, as_json: bool) -> None:
    """Print the variables that point AGENT at a recorder, as lines for a shell.

    AGENT is the program's name: claude, codex, opencode, aider, mini, gemini, qwen, copilot; any other gets the usual variables. What an
    agent takes as arguments only stands in a comment. `playhead run -- AGENT` does all this by itself.

    \b
    Example: eval "$(playhead env claude --url http://127.0.0.1:8080)"
    """
    from tracer import recipes

    found = recipes.pointing([agent], recipes.bases([(url.rstrip("/"), url)]), os.environ)
    if as_json:
        console.document({"variables": dict(found.variables), "arguments": list(found.arguments)})
        return
    for name, value in found.variables:
        click.echo(f"export {name}={shlex.quote(value)}")
    if found.arguments:
        click.echo(f"# start it as: {shlex.join([agent, *found.arguments])}")
