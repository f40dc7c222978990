"""`playhead verify`: proves that a trace still holds what was put into it."""

from dataclasses import asdict

import click

from cli import console, options


@click.command()
@options.trace_option
@options.json_option
def verify(trace: str | None, as_json: bool) -> None:
    """Rebuild every body and check it against the sha256 taken when it was written.

    Exit code 0: whole; 3: something is wrong, and what.

    \b
    Example: playhead verify
    """
    from storage import verify as checking
    from storage.errors import VerdictError

    with options.open_trace(trace) as opened:
        found = checking.verify(opened)
    if as_json:
        console.document({"whole": found.is_whole, **asdict(found)})
    else:
        for problem in found.problems:
            click.echo(console.plain(problem))
        console.say(
            f"{console.count(found.exchanges)} exchanges, {console.count(found.bodies)} bodies ({console.size(found.body_bytes)}),"
            f" {console.count(found.elements)} elements on {console.count(found.nodes)} nodes"
            + (": all as they were written" if found.is_whole else "")
        )
    if not found.is_whole:
        raise VerdictError(
            f"{console.count(found.problem_count)} problems in this trace",
            hint="keep the file: what is whole can be read and replayed",
        )
