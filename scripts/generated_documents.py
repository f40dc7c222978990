"""Writes the references that are made from the code, or with --check says which are stale: the files of docs/reference/."""

import pathlib
import sys

import click

from cli import main as command_line
from replay import metrics
from storage import documentation

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
BEGIN, END = "<!-- made from replay.metrics by scripts/fix -->", "<!-- end -->"
INTRODUCTION = """Made from the commands themselves by `scripts/fix`; do not edit.

Listings take `--json` and then print one JSON document on stdout; talk and progress go to stderr.
Exit codes: 0 done, 1 something you can mend (a line `error:`, a line `hint:`), 2 wrong usage, 3 a failed verdict
(`compare --fail-if`, `verify`), 130 stopped with Ctrl-C.
Ids: `e12` an exchange, `t5` a thread, `s3` a session, `r2` a run; `latest` is the newest session or run."""


def cli_reference() -> str:
    """docs/reference/cli.md: what `--help` says of each command."""
    pages = ["# Command line", INTRODUCTION, page(command_line.main)]
    pages += [page(command_line.load(listed)) for listed in command_line.COMMANDS]
    return "\n\n".join(pages) + "\n"


def page(command: click.Command) -> str:
    """One command: its help as an 80 column terminal shows it."""
    shown = {"terminal_width": 80, "max_content_width": 80}
    context = click.Context(command_line.main, info_name="playhead", **{**command_line.main.context_settings, **shown})
    if command is not command_line.main:
        context = click.Context(command, info_name=command.name, parent=context, **shown)
    return f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```"


def metrics_reference() -> str:
    """docs/reference/metrics.md: its table is made from the functions' own, the words around it are kept."""
    before, _, rest = (REFERENCE / "metrics.md").read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{metrics.reference()}{END}{after}"


DOCUMENTS = (("cli.md", cli_reference), ("metrics.md", metrics_reference), ("schema.md", documentation.markdown))


def stale() -> list[str]:
    """The references that the code has left behind."""
    return [name for name, made in DOCUMENTS if not (REFERENCE / name).exists() or (REFERENCE / name).read_text() != made()]


def write() -> None:
    """Writes all of them."""
    for name, made in DOCUMENTS:
        (REFERENCE / name).write_text(made())


if __name__ == "__main__":
    if "--check" not in sys.argv:
        write()
    elif names := stale():
        sys.exit("stale: " + ", ".join(f"docs/reference/{name}" for name in names) + " (scripts/fix writes them anew)")
