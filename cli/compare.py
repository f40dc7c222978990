"""`playhead compare`: two runs of the same sessions, metric by metric, with a verdict."""

import math
from typing import TYPE_CHECKING, Any

import click

from cli import console, options

if TYPE_CHECKING:
    from replay.compare import Arm, Comparison, Verdict


@click.command()
@click.argument("a", metavar="RUN")
@click.argument("b", metavar="RUN")
@click.option("--margin", type=click.FloatRange(min=0), default=2.0, show_default=True, metavar="PCT", help="A change within this is none.")
@click.option("--fail-if", "limits", multiple=True, metavar="METRIC:+PCT%", help="Exit 3 when the metric grew by more, e.g. ttft_ms:+10%.")
@options.trace_option
@options.json_option
def compare(trace: str | None, as_json: bool, a: str, b: str, margin: float, limits: tuple[str, ...]) -> None:
    """Compare two runs of the same sessions: the second against the first.

    Turns are paired; intervals come from drawing whole sessions (95 %, 2000 draws). `worse` and `better` need the whole interval
    beyond the margin.

    \b
    Example: playhead compare r1 r2 --fail-if ttft_ms:+10%
    """
    from replay import compare as comparing
    from storage.errors import VerdictError

    if not math.isfinite(margin):
        raise click.BadParameter(f"{margin} is no percentage", param_hint="--margin")
    with options.usage():
        wanted = [comparing.limit(text) for text in limits]
    with options.open_trace(trace) as opened:
        arms = (_arm(opened, a), _arm(opened, b))
        found = comparing.compare(*arms, margin=margin / 100)
    _say_failures(found)
    _say_contaminated(arms)
    if as_json:
        console.document({verdict.metric: _listed(verdict, found.censored) for verdict in found.verdicts})
    else:
        _show(found)
    broken = comparing.broken(found, wanted)
    if broken:
        raise VerdictError("; ".join(broken))


def _arm(trace: Any, text: str) -> "Arm":
    from replay.compare import Arm
    from storage import exchanges, ids, runs
    from storage.records import RunId

    run = runs.load(trace, RunId(ids.parse(trace, text, "r")[1]))
    return Arm(run=run, rows=exchanges.listing(trace, runs=[run.id]))


def _say_failures(found: "Comparison") -> None:
    """What failed comes first; a turn that failed in one arm is in neither's figures."""
    for name, failed in (("first", found.failed_a), ("second", found.failed_b)):
        if failed:
            reasons = ", ".join(f"{number} x {console.plain(reason)}" for reason, number in failed.items())
            console.say(f"{sum(failed.values())} turns of the {name} run failed: {reasons}")
    if found.censored:
        console.say(f"{found.censored} turns are left out of both arms: they did not complete in both")


def _say_contaminated(arms: "tuple[Arm, ...]") -> None:
    """Runs whose engine counted other traffic too are told before their figures."""
    from replay import served
    from storage import ids

    for run in (arm.run for arm in arms):
        engine = (run.summary or {}).get("engine")
        if engine is not None and (engine["contaminated"] or engine["went_back"]):
            console.say(f"{ids.text('r', run.id)}: {served.sentence(engine)}")


def _listed(verdict: "Verdict", censored: int) -> dict[str, Any]:
    estimate = verdict.estimate
    return {
        "a": verdict.a,
        "b": verdict.b,
        "ratio": estimate.ratio,
        "ci": None if estimate.low is None else [estimate.low, estimate.high],
        "ratio_of_sums": verdict.sums.ratio,
        "verdict": verdict.verdict,
        "n_sessions": verdict.n_sessions,
        "n_turns": verdict.n_turns,
        "censored": censored,
        "weak": verdict.weak,
    }


def _show(found: "Comparison") -> None:
    figures = [verdict for verdict in found.verdicts if verdict.n_turns]
    columns = [
        console.Column(title="metric", whole=True),
        *(console.Column(title=title, right=True) for title in ("first", "second", "ratio")),
        console.Column(title="95 % interval", whole=True),
        console.Column(title="verdict", whole=True),
    ]
    console.table([_row(verdict) for verdict in figures], columns)
    if figures:
        turns = max(verdict.n_turns for verdict in figures)
        sessions = max(verdict.n_sessions for verdict in figures)
        click.echo(f"{turns} turns of {sessions} session{'' if sessions == 1 else 's'}, paired")
        if sessions == 1:
            click.echo("one session cannot say how sessions differ: no interval, and no verdict; record and replay more")
    if any(verdict.weak for verdict in figures):
        click.echo("* a weak interval: fewer than 20 sessions, or too few turns for the quantile")
    missing = [verdict.metric for verdict in found.verdicts if not verdict.n_turns]
    if missing:
        click.echo("not reported in both runs: " + ", ".join(missing))


def _row(verdict: "Verdict") -> tuple[str | None, ...]:
    estimate, shown = verdict.estimate, _milliseconds if verdict.metric.endswith("_ms") else _tokens
    interval = None if estimate.low is None or estimate.high is None else f"{estimate.low:.3f} to {estimate.high:.3f}"
    ratio = None if estimate.ratio is None else f"{estimate.ratio:.3f}"
    return verdict.metric, shown(verdict.a), shown(verdict.b), ratio, interval, verdict.verdict + (" *" if verdict.weak else "")


def _milliseconds(figure: float | None) -> str | None:
    return console.milliseconds(figure)


def _tokens(figure: float | None) -> str | None:
    return console.count(None if figure is None else round(figure))
