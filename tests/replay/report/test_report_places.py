"""Places of bars, columns and points: they say what the figures say."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.report import charts, waterfall
from replay.report.facts import Facts
from replay.report.scales import scale


@given(st.floats(min_value=1e-6, max_value=1e12), st.integers(2, 9))
def test_a_scale_holds_its_largest_value(largest: float, ticks: int) -> None:
    """From 0 to a round number that is not below it, with about as many ticks as asked for."""
    found = scale(largest, ticks)
    assert found.ticks[0] == 0
    assert found.top >= largest * (1 - 1e-9)
    assert 2 <= len(found.ticks) <= ticks + 2
    assert found.percent(found.top) == 100


def test_a_scale_of_nothing() -> None:
    """Zeros have an axis too."""
    assert scale(0).ticks == [0, 1]


def row(start: float, length: float, first: float | None, **more: Any) -> Facts:
    known = {"session": "s1", "copy": None, "thread": "t1", "agent": "main", "kind": "turn"}
    return {**known, "start_ms": start, "last_ms": length, "first_content_ms": first, **more}


def test_bars_lie_where_the_exchanges_were() -> None:
    """Start, length and the wait before the first content, in percent of the axis."""
    found = waterfall.waterfall([row(0, 500, 250), row(600, 400, 100), row(550, 100, None, thread="t2", agent="explore")], 1000)
    main, other = found["lanes"]
    assert [(bar["x"], bar["width"], bar["wait"]) for bar in main["bars"]] == [(0, 50, 25), (60, 40, 10)]
    assert main["gaps"] == [(50, 60)]
    assert (other["agent"], other["bars"][0]["wait"], other["bars"][0]["width"]) == ("explore", 10, 10)
    assert found["breaks"] == []


def test_a_long_idle_stretch_is_cut_and_marked() -> None:
    """An hour of nothing takes a tenth of the busy time; what stands after it keeps its length; the mark says how long it was."""
    rows = [row(0, 1000, 500), row(3_600_000 + 1000, 1000, 500)]
    assert waterfall.longest([rows]) == pytest.approx(2200)
    found = waterfall.waterfall(rows, 2200)
    before, after = found["lanes"][0]["bars"]
    assert before["width"] == pytest.approx(after["width"], abs=0.01)
    assert found["breaks"][0][2] == 3_600_000
    assert after["x"] == pytest.approx(100 * 1200 / 2200, abs=0.01)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 500)), min_size=1, max_size=12))
def test_time_on_the_axis_never_runs_back(spans: list[tuple[int, int]]) -> None:
    """Cut or not: a later moment is never drawn before an earlier one."""
    time = waterfall.Time([(start, start + length) for start, length in spans])
    moments = sorted({moment for start, length in spans for moment in (start, start + length / 2, start + length, start + 20)})
    placed = [time.place(moment) for moment in moments]
    assert all(b >= a - 1e-9 for a, b in pairwise(placed))


def test_lanes_and_sessions_that_are_not_drawn_are_counted() -> None:
    """No thread disappears without a word; what belongs to no session is not drawn."""
    rows = [row(n * 10, 5, 1, thread=f"t{n}") for n in range(waterfall.LANES + 3)]
    assert waterfall.waterfall(rows, 1000)["hidden"] == 3
    assert waterfall.sessions([*rows, row(0, 1, 1, session=None)]) == [rows]


def turn(prompt: int | None, reported: int | None, **more: Any) -> Facts:
    known = {"prompt_tokens": prompt, "reported": reported, "ideal": 40, "predicted": None, "exchange": "e1", "ttft_ms": 5.0}
    return {**known, "uncached_tokens": None if reported is None or prompt is None else prompt - reported, **more}


def test_columns_are_as_high_as_their_tokens() -> None:
    """On an axis from 0; what was not reported has no column, a 0 has one without height."""
    found = charts.reuse([turn(100, 50), turn(80, 0), turn(60, None), turn(None, None)])
    assert found is not None
    high = charts.HEIGHT
    assert [column["tops"]["prompt_tokens"] for column in found["columns"]] == [0, high * 0.2, high * 0.4]
    assert [column["tops"]["reported"] for column in found["columns"]] == [high / 2, high, None]
    assert found["shows"] == {"prompt_tokens": True, "ideal": True, "predicted": False, "reported": True}


def test_many_turns_are_means_of_neighbours() -> None:
    """Thousands of turns stay a chart: each column is the mean of as many turns, and says so."""
    found = charts.reuse([turn(100, n % 2 * 100) for n in range(1000)])
    assert found is not None
    assert found["together"] == 5
    assert len(found["columns"]) == 200
    assert charts.reuse([turn(None, None)]) is None


def test_points_of_the_scatter() -> None:
    """Only turns with both figures; the others are counted."""
    subjects = [{"rows": [turn(100, 0, ttft_ms=50.0), turn(100, 50, ttft_ms=25.0), turn(100, None), turn(100, 50, ttft_ms=None)]}]
    found = charts.scatter(subjects)
    assert found is not None
    assert [(x, y) for x, y, _ in found["series"][0]] == [
        (100, round(charts.HEIGHT * (1 - 50 / 60), 2)),
        (50, round(charts.HEIGHT * (1 - 25 / 60), 2)),
    ]
    assert found["missing"] == [2]
    assert charts.scatter([{"rows": []}]) is None


def test_ratios_stand_around_one() -> None:
    """A logarithmic axis: twice and half are equally far from the middle; the band is the margin."""
    verdicts = [
        {"metric": "a", "ratio": 2.0, "ci": [1.5, 2.5]},
        {"metric": "b", "ratio": 0.5, "ci": [0.4, 0.6]},
        {"metric": "c", "ratio": None, "ci": None},
    ]
    found = charts.forest(verdicts, 0.02)
    assert found is not None
    assert found["marks"]["a"]["at"] - 50 == pytest.approx(50 - found["marks"]["b"]["at"], abs=0.01)
    assert found["band"][0] < 50 < found["band"][1]
    assert (50.0, 1.0) in found["ticks"]
    assert "c" not in found["marks"]
    assert charts.forest([verdicts[2]], 0.02) is None
