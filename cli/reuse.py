"""`playhead reuse`: the reuse ledger, turn by turn and in total."""

import math
from typing import TYPE_CHECKING, Any

import click

from cli import console, options

if TYPE_CHECKING:
    from replay.reuse.ledger import Ledger, Row
    from replay.reuse.survey import Asked


@click.command()
@click.argument("which", nargs=-1, metavar="[SESSION|RUN]...")
@click.option("--rules", metavar="NAME", help="Predict under the rules of an engine: vllm, llama_cpp.")
@click.option("--block", type=click.IntRange(min=1), metavar="TOKENS", help="Block size. [16 for vllm, 1 for llama_cpp]")
@click.option("--capacity", type=click.IntRange(min=1), metavar="TOKENS", help="Room in the cache; least recently used goes first.")
@click.option("--ttl", type=click.FloatRange(min=0), metavar="S", help="Seconds that a block lives after its last use.")
@click.option("--generated", is_flag=True, help="Also what could be reused if generated tokens are kept.")
@options.trace_option
@options.json_option
def reuse(trace: str | None, as_json: bool, which: tuple[str, ...], **how: Any) -> None:
    """Account for prompt tokens: what could be reused, what rules allow, what was reported.

    Without SESSION or RUN: everything recorded. `latest` is the latest session.

    \b
    Example: playhead reuse latest --rules vllm
    """
    from replay.reuse import survey, words
    from tracer import reading

    with options.open_trace(trace) as opened:
        reading.catch_up(opened)
        ledger = survey.ledger_of(opened, _asked(opened, which, **how))
    if as_json:
        console.document(words.document(ledger))
        return
    if ledger.rows:
        _show(ledger)
    for sentence in words.sentences(ledger):
        console.paragraph(sentence)


def _asked(
    trace: Any, which: tuple[str, ...], rules: str | None, block: int | None, capacity: int | None, ttl: float | None, generated: bool
) -> "Asked":
    from replay.reuse.rules import rule
    from replay.reuse.survey import Asked
    from storage import ids
    from storage.records import RunId

    if ttl is not None and not math.isfinite(ttl):
        raise click.BadParameter(f"{ttl} is no number of seconds", param_hint="--ttl")
    if rules is None and (block, capacity, ttl) != (None, None, None):
        raise click.UsageError("--block, --capacity and --ttl are limits of --rules: say which rules, e.g. --rules vllm")
    with options.usage():
        wanted = None if rules is None else rule(rules, block=block, capacity=capacity, ttl_s=ttl)
    found = [ids.parse(trace, text, "sr") for text in which]
    return Asked(
        sessions=[number for kind, number in found if kind == "s"],
        runs=[RunId(number) for kind, number in found if kind == "r"],
        rule=wanted,
        generated=generated,
    )


def _show(ledger: "Ledger") -> None:
    predicted = ledger.rule is not None
    figures = ["prompt", "ideal", *(["predicted"] if predicted else []), "reported", "broken", "lost"]
    columns = [
        console.Column(title="id", whole=True),
        console.Column(title="session", whole=True, optional=True),
        console.Column(title="turn", right=True),
        *(console.Column(title=title, right=True) for title in figures),
        console.Column(title="cause"),
    ]
    rows = [_line(row, predicted=predicted) for row in ledger.rows]
    console.table([*rows, _sum(ledger, predicted=predicted)], columns)
    click.echo()


def _line(row: "Row", *, predicted: bool) -> list[str | None]:
    place = f"{row.cause}" + (f" {row.at.path}" if row.at else "") if row.cause else ""
    figures = [row.prompt_tokens, row.ideal, *([row.predicted] if predicted else []), row.reported, row.broken, row.lost]
    name = None if row.session is None else f"s{row.session}"
    return [f"e{row.exchange}", name, console.count(row.turn), *map(console.count, figures), place]


def _sum(ledger: "Ledger", *, predicted: bool) -> list[str | None]:
    totals = ledger.totals
    figures = [totals.prompt_tokens, totals.ideal, *([totals.predicted] if predicted else []), totals.reported, totals.broken, totals.lost]
    return ["all", "", console.count(totals.turns), *map(console.count, figures), ""]
