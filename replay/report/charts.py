"""Reuse by turn, TTFT against uncached tokens, and intervals of ratios, as places on axes. Pure; across in percent, down in pixels.

It does not know colours, text sizes or HTML.
"""

from collections.abc import Sequence
from itertools import batched
from math import log
from typing import Any

from replay.report.facts import Facts
from replay.report.scales import Scale, scale

HEIGHT = 190
COLUMNS = 240
"""More turns than this are shown as means of neighbours."""
POINTS = 3000
_NAMED = (
    (0.1, 1.0, 10.0),
    (0.25, 0.5, 1.0, 2.0, 4.0),
    (0.5, 0.75, 1.0, 1.5, 2.0),
    (0.8, 0.9, 1.0, 1.1, 1.25),
    (0.9, 0.95, 1.0, 1.05, 1.1),
)
"""Ticks of a ratio's axis, widest first."""
KINDS = ("prompt_tokens", "ideal", "predicted", "reported")


def _down(axis: Scale, value: float) -> float:
    return round(HEIGHT - HEIGHT * value / axis.top, 2)


def reuse(rows: Sequence[Facts]) -> Facts | None:
    """A column a turn: its prompt, what was reported of it, and where ideal and predicted lie. None without a prompt."""
    counted = [row for row in rows if row["prompt_tokens"]]
    if not counted:
        return None
    together = -(-len(counted) // COLUMNS)
    groups = [_mean(some) for some in batched(counted, together)]
    axis = scale(max(group["prompt_tokens"] for group in groups), 4)
    wide = 100 / len(groups)
    return {
        "height": HEIGHT,
        "together": together,
        "ticks": [(_down(axis, at), at) for at in axis.ticks],
        "turns": [(round(100 * (number - 0.5) / len(counted), 3), number) for number in _marked(len(counted))],
        "columns": [_column(group, axis, (n * wide, wide)) for n, group in enumerate(groups)],
        "shows": {kind: any(group[kind] is not None for group in groups) for kind in KINDS},
    }


def _marked(count: int, most: int = 8) -> list[int]:
    """Which turns are named below the axis: the first and round numbers."""
    step = max(1, round(scale(count, most).step))
    return list(range(1, count + 1)) if step == 1 else [1, *range(step, count + 1, step)]


def _mean(rows: Sequence[Facts]) -> Facts:
    found: Facts = {"first": rows[0], "last": rows[-1]}
    for kind in KINDS:
        known = [row[kind] for row in rows if row[kind] is not None]
        found[kind] = sum(known) / len(known) if known else None
    return found


def _column(group: Facts, axis: Scale, place: tuple[float, float]) -> Facts:
    left, wide = place
    gap = 0.14 * wide if wide > 0.6 else 0.0
    tops = {kind: None if group[kind] is None else _down(axis, group[kind]) for kind in KINDS}
    return {"x": round(left + gap, 3), "width": round(wide - 2 * gap, 3), "tops": tops, "group": group}


def scatter(subjects: Sequence[Facts]) -> Facts | None:
    """TTFT against the tokens that had to be computed, a point a turn. None where no turn has both."""
    series = [[row for row in subject["rows"] if row["ttft_ms"] is not None and row["uncached_tokens"] is not None] for subject in subjects]
    every = [row for rows in series for row in rows]
    if not every:
        return None
    across, up = scale(max(row["uncached_tokens"] for row in every), 5), scale(max(row["ttft_ms"] for row in every), 4)
    skip = -(-len(every) // POINTS)
    return {
        "height": HEIGHT,
        "skip": skip,
        "across": [(across.percent(at), at) for at in across.ticks],
        "up": [(_down(up, at), at) for at in up.ticks],
        "series": [[(across.percent(row["uncached_tokens"]), _down(up, row["ttft_ms"]), row) for row in rows[::skip]] for rows in series],
        "missing": [len(subject["rows"]) - len(rows) for subject, rows in zip(subjects, series, strict=True)],
    }


def forest(verdicts: Sequence[Facts], margin: float) -> Facts | None:
    """Each ratio with its interval on one logarithmic axis around 1. None where no ratio is known."""
    known = [verdict for verdict in verdicts if verdict["ci"] is not None]
    if not known:
        return None
    widest = max(abs(log(end)) for verdict in known for end in verdict["ci"])
    reach = max(1.1 * widest, 3 * log(1 + margin))

    def percent(value: float) -> float:
        return round(min(100.0, max(0.0, 50 + 50 * log(value) / reach)), 3)

    return {
        "band": (percent(1 / (1 + margin)), percent(1 + margin)),
        "ticks": [(percent(at), at) for at in _ratios(reach)],
        "marks": {verdict["metric"]: _mark(verdict, percent) for verdict in known},
    }


def _mark(verdict: Facts, percent: Any) -> Facts:
    low, high = verdict["ci"]
    return {"low": percent(low), "high": percent(high), "at": percent(verdict["ratio"])}


def _ratios(reach: float) -> list[float]:
    """Ratios worth naming inside the axis."""
    for named in _NAMED:
        inside = [at for at in named if abs(log(at)) <= reach * 0.95]
        if len(inside) >= 3:
            return inside
    return [1.0]
