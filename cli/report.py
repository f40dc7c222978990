"""`playhead report`: sessions and runs as a document."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import console, options
from cli import output as written

if TYPE_CHECKING:
    from replay.report.collecting import Asked

FORMATS = {"html": "html", "text": "terminal", "markdown": "markdown", "json": "json", "csv": "csv"}
"""The formats, and the module of `replay.report` that makes each."""

_BY_SUFFIX = {".txt": "text", ".md": "markdown", ".json": "json", ".csv": "csv"}
"""What a file's name says; any other is HTML."""


@click.command()
@click.argument("which", nargs=-1, metavar="[RUN|SESSION]...")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=written.named,
    metavar="FILE",
    help="Write there; the format by its name.",
)
@click.option("--format", "form", type=click.Choice(list(FORMATS)), help="[by FILE's name, else text]")
@click.option("--rules", metavar="NAME", help="Also predict reuse under the rules of an engine: vllm, llama_cpp.")
@click.option("--block", type=click.IntRange(min=1), metavar="TOKENS", help="Block size of the rules.")
@options.trace_option
@options.json_option
def report(trace: str | None, as_json: bool, which: tuple[str, ...], output: Path | None, form: str | None, **how: Any) -> None:
    """Report on RUNs and SESSIONs: time, prefix reuse, latency, every turn.

    Two runs are held against each other, the second against the first. Without RUN or SESSION: everything recorded.
    `latest` is the latest session. An HTML report is one file that fetches nothing.

    \b
    Example: playhead report r1 r2 -o report.html
    """
    import importlib
    import time

    from replay.report.collecting import collect
    from tracer import reading

    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} ask for two formats")
    chosen = form or _by_name(output) or ("json" if as_json else "text")
    with options.open_trace(trace) as opened:
        reading.catch_up(opened)
        facts = collect(opened, _asked(opened, which, **how), made_ns=time.time_ns())
    _write(importlib.import_module(f"replay.report.{FORMATS[chosen]}").render(facts), output)


def _by_name(output: Path | None) -> str | None:
    """The format that a file's name asks for."""
    return None if output is None else _BY_SUFFIX.get(output.suffix.lower(), "html")


def _asked(trace: Any, which: tuple[str, ...], rules: str | None, block: int | None) -> "Asked":
    from replay.report.collecting import Asked
    from replay.reuse.rules import rule
    from storage import ids
    from storage.records import RunId

    if rules is None and block is not None:
        raise click.UsageError("--block belongs to --rules: say which rules, e.g. --rules vllm")
    with options.usage():
        wanted = None if rules is None else rule(rules, block=block)
    found = [ids.parse(trace, text, "rs") for text in which]
    return Asked(
        sessions=[number for kind, number in found if kind == "s"],
        runs=[RunId(number) for kind, number in found if kind == "r"],
        rule=wanted,
    )


def _write(text: str, output: Path | None) -> None:
    """To the file, readable by its owner alone since it shows what was recorded; or to stdout."""
    if output is None:
        click.echo(text, nl=False)
        return
    written.write(output, text)
    console.say(f"wrote {output}")
