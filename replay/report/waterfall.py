"""Where each exchange lies in time: lanes of threads, bars of exchanges, idle stretches cut short and marked. Pure; places in percent.

It does not know colours, text sizes or HTML.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from replay.report.facts import Facts
from replay.report.scales import scale

LANES = 16
"""Lanes drawn for a session; its other threads are counted."""
SESSIONS = 24
"""Sessions drawn of a subject."""
LONG_IDLE = 0.5
"""An idle stretch longer than this share of the busy time is cut to a tenth of it, and marked with its length."""
SHORT = 0.1
LEAST_WIDTH = 0.15


class Time:
    """Turns moments (ms) into places, with long stretches in which nothing ran cut short."""

    def __init__(self, spans: Sequence[tuple[float, float]]) -> None:
        merged = _merged(spans)
        busy = sum(end - start for start, end in merged) or 1.0
        self.start = merged[0][0] if merged else 0.0
        self._cut = [(a[1], b[0]) for a, b in pairwise(merged) if b[0] - a[1] > LONG_IDLE * busy]
        self._short = SHORT * busy
        self.length = (self.place(merged[-1][1]) if merged else 0.0) or 1.0

    def place(self, at: float) -> float:
        """A moment as ms on the axis."""
        saved = sum(end - start - self._short for start, end in self._cut if at >= end)
        inside = next(((start, end) for start, end in self._cut if start < at < end), None)
        if inside is not None:
            return inside[0] - self.start - saved + self._short * (at - inside[0]) / (inside[1] - inside[0])
        return at - self.start - saved

    @property
    def breaks(self) -> list[tuple[float, float, float]]:
        """(place of the start, place of the end, true length) of each stretch that was cut."""
        return [(self.place(start), self.place(end), end - start) for start, end in self._cut]


def _merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def sessions(rows: Sequence[Facts]) -> list[list[Facts]]:
    """Rows by session and copy, in order of start; what belongs to no session is left out."""
    grouped: dict[tuple[Any, Any], list[Facts]] = {}
    for row in rows:
        if row["session"] is not None:
            grouped.setdefault((row["session"], row["copy"]), []).append(row)
    return list(grouped.values())


def longest(groups: Sequence[Sequence[Facts]]) -> float:
    """The longest axis among sessions, ms: what makes their bars comparable."""
    return max((Time(_spans(group)).length for group in groups), default=1.0)


def _spans(rows: Sequence[Facts]) -> list[tuple[float, float]]:
    return [(row["start_ms"], row["start_ms"] + (row["last_ms"] or 0.0)) for row in rows]


def waterfall(rows: Sequence[Facts], length_ms: float) -> Facts:
    """One session's lanes on an axis of `length_ms`."""
    time = Time(_spans(rows))
    axis = scale(length_ms, 6)
    threads: dict[Any, list[Facts]] = {}
    for row in rows:
        threads.setdefault(row["thread"], []).append(row)
    lanes = [_lane(members, time, length_ms) for members in list(threads.values())[:LANES]]
    return {
        "session": rows[0]["session"],
        "copy": rows[0]["copy"],
        "exchanges": len(rows),
        "lanes": lanes,
        "hidden": max(0, len(threads) - LANES),
        "ticks": [(_percent(at, length_ms), at) for at in axis.ticks if at <= length_ms],
        "breaks": [(_percent(start, length_ms), _percent(end - start, length_ms), real) for start, end, real in time.breaks],
    }


def _percent(ms: float, length_ms: float) -> float:
    return round(100 * ms / length_ms, 3)


def _lane(rows: Sequence[Facts], time: Time, length_ms: float) -> Facts:
    bars = [_bar(row, time, length_ms) for row in rows]
    gaps = [(a["x"] + a["width"], b["x"]) for a, b in pairwise(bars) if b["x"] > a["x"] + a["width"]]
    return {"thread": rows[0]["thread"], "agent": rows[0]["agent"] or rows[0]["kind"], "bars": bars, "gaps": gaps}


def _bar(row: Facts, time: Time, length_ms: float) -> Facts:
    """`x`, `width` of the whole and `wait`, the part before the first content."""
    start, length = row["start_ms"], row["last_ms"] or 0.0
    first = row["first_content_ms"]
    x = _percent(time.place(start), length_ms)
    width = max(LEAST_WIDTH, _percent(time.place(start + length) - time.place(start), length_ms))
    wait = width if first is None else _percent(time.place(start + min(first, length)) - time.place(start), length_ms)
    return {"x": x, "width": width, "wait": min(wait, width), "row": row}
