"""Two runs of the same plan against two targets: paired, by session, with a verdict for each metric.

Pure. A turn that failed in one arm is left out of both. The verdict is about the interval, not the estimate: `worse` and `better` need
all of it beyond the margin (docs/reference/metrics.md, "Comparing two targets"). It does not know how rows are stored or shown.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay import metrics, statistics
from replay.metrics import Measured
from replay.statistics import Estimate, Pairs
from storage.errors import PlayheadError
from storage.records import ExchangeRow, Run, State

MARGIN = 0.02
WIDE = 5
"""An interval that holds "no change" and reaches beyond this many margins says nothing: `inconclusive`."""
FEW_SESSIONS = 20
"""Below this an interval over sessions is weak, and is said to be."""

BETTER, WORSE, NO_DIFFERENCE, INCONCLUSIVE = "better", "worse", "no difference", "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One run with its exchanges. `sources` gives the recorded session of each recorded exchange."""

    run: Run
    rows: Sequence[ExchangeRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the comparison says of one metric. `ratio` is b/a; below 1 is better for a latency."""

    metric: str
    a: float | None
    b: float | None
    estimate: Estimate
    sums: Estimate
    verdict: str
    n_sessions: int
    n_turns: int
    weak: bool
    """Few sessions, or a quantile with fewer than five values beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All verdicts, and the failures that must be read before them."""

    verdicts: tuple[Verdict, ...]
    failed_a: Mapping[str, int]
    failed_b: Mapping[str, int]
    censored: int
    """Pairs left out because one of the two failed."""


@dataclass(frozen=True, slots=True)
class _Compared:
    name: str
    value: Callable[[Measured], float | None]
    quantile: float
    higher_is_better: bool = False


def _latency(name: str) -> tuple[_Compared, ...]:
    stem, unit = name.rsplit("_", 1)
    value = metrics.named(name).value
    return tuple(_Compared(name if q == 0.5 else f"{stem}_{label}_{unit}", value, q) for label, q in statistics.QUANTILES)


def _cached(measured: Measured) -> float | None:
    return measured.row.usage.cached


COMPARED = (*_latency("ttft_ms"), *_latency("ttfo_ms"), *_latency("itl_ms"), *_latency("e2e_ms"))
"""What is compared by the turn: medians by the median ratio, tails by pooled quantiles."""

SUMMED = (
    _Compared("uncached_tokens", metrics.uncached_tokens, 0.5),
    _Compared("cached_tokens", _cached, 0.5, higher_is_better=True),
    _Compared("output_tokens", metrics.output_tokens, 0.5),
)
"""What is compared by its sums."""


def differences(a: Run, b: Run) -> list[str]:
    """What makes two runs unlike: the plan, the policy. Empty when they can be compared."""
    found = []
    plan_a, plan_b = a.settings.get("plan", {}), b.settings.get("plan", {})
    if plan_a.get("sha256") != plan_b.get("sha256"):
        found.append(
            "plan: "
            + " / ".join(f"{p.get('sessions')} sessions, {p.get('turns')} turns ({str(p.get('sha256'))[:8]})" for p in (plan_a, plan_b))
        )
    policy_a, policy_b = a.settings.get("policy", {}), b.settings.get("policy", {})
    names = sorted(policy_a.keys() | policy_b.keys())
    found += [f"{name}: {policy_a.get(name)} / {policy_b.get(name)}" for name in names if policy_a.get(name) != policy_b.get(name)]
    set_a, set_b = _set_fields(a), _set_fields(b)
    if set_a != set_b:
        found.append(f"--set: {set_a or 'nothing'} / {set_b or 'nothing'}")
    return found


def _set_fields(run: Run) -> dict[str, Any]:
    return {edit["field"]: edit["to"] for edit in run.settings.get("edits", ()) if edit["edit"] == "set"}


def compare(a: Arm, b: Arm, *, margin: float = MARGIN) -> Comparison:
    """The paired comparison. Raises PlayheadError when the runs did not play the same thing, or share no completed turn."""
    unlike = differences(a.run, b.run)
    if unlike:
        raise PlayheadError(
            "these runs cannot be compared: " + "; ".join(unlike), hint="replay the same sessions with the same options against both"
        )
    keyed_a, keyed_b = ({(row.source_exchange, row.copy): row for row in arm.rows} for arm in (a, b))
    both = sorted(keyed_a.keys() & keyed_b.keys(), key=str)
    pairs = [(Measured(keyed_a[key]), Measured(keyed_b[key])) for key in both]
    sound = [pair for pair in pairs if not any(metrics.failure_of(one.row) for one in pair)]
    if not sound:
        raise PlayheadError("these runs share no turn that completed in both", hint="see the failures with: playhead exchanges RUN")
    return Comparison(
        verdicts=tuple(_by_turn(what, sound, margin) for what in COMPARED) + tuple(_by_sum(what, sound, margin) for what in SUMMED),
        failed_a=_failures(a.rows),
        failed_b=_failures(b.rows),
        censored=len(keyed_a.keys() | keyed_b.keys()) - len(sound),
    )


def _failures(rows: Sequence[ExchangeRow]) -> Mapping[str, int]:
    return dict(Counter(reason for row in rows if row.state != State.INTERRUPTED and (reason := metrics.failure_of(row)) is not None))


def _paired(what: _Compared, turns: Sequence[tuple[Measured, Measured]]) -> Pairs:
    known = [
        (one.row.session or 0, x, y) for one, other in turns if (x := what.value(one)) is not None and (y := what.value(other)) is not None
    ]
    return Pairs(sessions=[k[0] for k in known], a=[k[1] for k in known], b=[k[2] for k in known])


def _by_turn(what: _Compared, turns: Sequence[tuple[Measured, Measured]], margin: float) -> Verdict:
    pairs = _paired(what, turns)
    estimate = statistics.median_ratio(pairs) if what.quantile == 0.5 else statistics.quantile_ratio(pairs, what.quantile)
    return _verdict(what, pairs, estimate, margin)


def _by_sum(what: _Compared, turns: Sequence[tuple[Measured, Measured]], margin: float) -> Verdict:
    pairs = _paired(what, turns)
    return _verdict(what, pairs, statistics.sum_ratio(pairs), margin)


def _verdict(what: _Compared, pairs: Pairs, estimate: Estimate, margin: float) -> Verdict:
    sessions = len(set(pairs.sessions))
    summed = what in SUMMED
    a, b = (_middle(values, what.quantile, summed=summed) for values in (pairs.a, pairs.b))
    said = judge(estimate, margin)
    return Verdict(
        metric=what.name,
        a=a,
        b=b,
        estimate=estimate,
        sums=estimate if summed else statistics.sum_ratio(pairs),
        verdict={BETTER: WORSE, WORSE: BETTER}.get(said, said) if what.higher_is_better else said,
        n_sessions=sessions,
        n_turns=len(pairs.a),
        weak=sessions < FEW_SESSIONS or (not summed and statistics.is_too_small(len(pairs.a), what.quantile)),
    )


def _middle(values: Sequence[float], q: float, *, summed: bool) -> float | None:
    if not values:
        return None
    return float(sum(values)) if summed else statistics.percentile(sorted(values), q)


def judge(estimate: Estimate, margin: float = MARGIN) -> str:
    """The verdict of an interval, lower being better.

    Beyond the margin as a whole: better or worse. Inside it as a whole, or an estimate inside it whose interval is not wide: no
    difference. What is left (it may be one, it may not): inconclusive.
    """
    ratio, low, high = estimate.ratio, estimate.low, estimate.high
    if ratio is None or low is None or high is None:
        return INCONCLUSIVE
    if low > 1 + margin:
        return WORSE
    if high < 1 / (1 + margin):
        return BETTER
    inside = 1 / (1 + margin) <= ratio <= 1 + margin
    narrow = 1 / (1 + WIDE * margin) <= low and high <= 1 + WIDE * margin
    return NO_DIFFERENCE if inside and narrow else INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class Limit:
    """`METRIC:+PCT%` (or `-PCT%`): the verdict fails when the metric is beyond this and the interval leaves no change out."""

    metric: str
    percent: float


def limit(text: str) -> Limit:
    """A limit as given on the command line. Raises PlayheadError."""
    name, _, amount = text.partition(":")
    known = [what.name for what in (*COMPARED, *SUMMED)]
    if name not in known:
        raise PlayheadError(f"--fail-if {text!r} names no metric that is compared", hint="use one of: " + ", ".join(known))
    try:
        percent = float(amount.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not math.isfinite(percent):
        raise PlayheadError(f"--fail-if {text!r} says no percentage", hint=f"write METRIC:+PCT%, e.g. {name}:+10%")
    return Limit(name, percent)


def broken(comparison: Comparison, limits: Sequence[Limit]) -> list[str]:
    """The limits that are not kept, in words. What could not be measured keeps no limit."""
    by_name = {verdict.metric: verdict.estimate for verdict in comparison.verdicts}
    return [said for one in limits if (said := _broken(one, by_name[one.metric])) is not None]


def _broken(limit: Limit, estimate: Estimate) -> str | None:
    if estimate.ratio is None:
        return f"{limit.metric} could not be compared"
    if estimate.low is None or estimate.high is None:
        return f"{limit.metric} has no interval to judge by: it takes {statistics.FEWEST_SESSIONS} sessions at least"
    change = 100 * (estimate.ratio - 1)
    if limit.percent >= 0 and change > limit.percent and estimate.low > 1:
        return f"{limit.metric} grew by {change:.1f} %, more than {limit.percent:g} %"
    if limit.percent < 0 and change < limit.percent and estimate.high < 1:
        return f"{limit.metric} fell by {-change:.1f} %, more than {-limit.percent:g} %"
    return None
