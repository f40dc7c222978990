"""Percentiles and intervals against samples whose answer is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import statistics
from replay.statistics import Pairs, distribution, median_ratio, percentile, quantile_ratio, sum_ratio


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_the_percentile_rule_is_linear_interpolation_on_the_sorted_sample(values: list[float], q: float) -> None:
    """The same as numpy's default, for any sample."""
    assert percentile(sorted(values), q) == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-9)


def test_a_distribution_flags_the_quantiles_that_n_is_too_small_for() -> None:
    """n (1 - q) must reach 5: 10 for the median, 50 for p90, 500 for p99."""
    assert distribution([1.0] * 9).too_small == ("p50", "p90", "p99")
    assert distribution([1.0] * 10).too_small == ("p90", "p99")
    assert distribution([1.0] * 50).too_small == ("p99",)
    assert distribution([1.0] * 500).too_small == ()


def test_an_empty_sample_has_quantiles_that_are_none() -> None:
    """Missing is None, never 0; the keys are there all the same."""
    assert distribution([]) == statistics.Distribution(n=0, p50=None, p90=None, p99=None, too_small=("p50", "p90", "p99"))


def test_quantiles_of_a_known_sample() -> None:
    """0..100: the quantile is the percentage."""
    found = distribution([float(v) for v in reversed(range(101))])
    assert (found.n, found.p50, found.p90, found.p99) == (101, 50, 90, 99)


def sampled(scale: float, *, spread: float = 0.05, session_spread: float = 0.0, sessions: int = 40, turns: int = 5, seed: int = 1) -> Pairs:
    """Log-normal pairs: both arms share a turn's size; B is `scale` times A but for noise of a turn and of a session."""
    random = np.random.default_rng(seed)
    size = random.lognormal(4, 1, (sessions, turns))
    of_session = random.lognormal(0, session_spread, (sessions, 1)) if session_spread else 1.0
    a = size * random.lognormal(0, spread, size.shape)
    b = size * scale * of_session * random.lognormal(0, spread, size.shape)
    owner = np.repeat(np.arange(sessions), turns)
    return Pairs(sessions=list(owner), a=list(a.ravel()), b=list(b.ravel()))


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.3])
def test_the_interval_of_a_median_ratio_holds_the_true_one(scale: float) -> None:
    """Pairing takes the great spread of sizes out: the interval is as narrow as the noise."""
    found = median_ratio(sampled(scale))
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= scale <= found.high
    assert found.low <= found.ratio <= found.high
    assert found.high / found.low < 1.05


def test_the_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """95 % intervals of 60 samples whose sessions differ: between 50 and 60 hold it."""
    held = 0
    for seed in range(60):
        found = median_ratio(sampled(1.2, session_spread=0.2, seed=seed), draws=400)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.2 <= found.high
    assert held >= 50


def width(found: statistics.Estimate) -> float:
    assert found.low is not None
    assert found.high is not None
    return found.high - found.low


def test_sessions_that_differ_make_the_interval_wider_than_turns_alone_would() -> None:
    """The unit is the session: the same pairs, each taken as a session of its own, would look much surer."""
    pairs = sampled(1.2, session_spread=0.3, turns=20, sessions=20)
    alone = Pairs(sessions=list(range(len(pairs.a))), a=pairs.a, b=pairs.b)
    by_session, by_turn = median_ratio(pairs), median_ratio(alone)
    assert width(by_session) > 2 * width(by_turn)


def test_the_same_seed_gives_the_same_interval() -> None:
    """A verdict must not change when it is asked again."""
    assert median_ratio(sampled(1.1)) == median_ratio(sampled(1.1))
    assert median_ratio(sampled(1.1)) != median_ratio(sampled(1.1), seed=2)


def test_pooled_quantiles_and_sums_have_ratios_too() -> None:
    """A tail that is twice as long is twice as long; sums that are equal have ratio 1."""
    pairs = sampled(2.0, spread=0.01)
    tail, sums = quantile_ratio(pairs, 0.9), sum_ratio(pairs)
    for found in (tail, sums):
        assert found.ratio == pytest.approx(2.0, rel=0.03)
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.ratio <= found.high
    assert sum_ratio(Pairs(sessions=[1, 2], a=[0, 5], b=[0, 5])).ratio == pytest.approx(1)


def test_the_quantile_of_a_resample_is_that_of_the_repeated_sample() -> None:
    """Weights instead of copies change nothing."""
    random = np.random.default_rng(5)
    values, sessions = random.normal(size=50), random.integers(0, 7, 50)
    pool = statistics._Pool(values, sessions)
    for q in (0.0, 0.25, 0.5, 0.9, 0.99, 1.0):
        weights = random.integers(0, 4, pool.clusters)
        repeated = np.concatenate([np.repeat(v, weights[s]) for v, s in zip(values, sessions, strict=True)])
        assert pool.quantile(q, weights) == pytest.approx(float(np.quantile(repeated, q)))


@pytest.mark.parametrize("ratio", [median_ratio, sum_ratio, lambda pairs: quantile_ratio(pairs, 0.9)])
def test_nothing_measured_is_no_ratio(ratio: object) -> None:
    """None, not 0 or 1."""
    for pairs in (Pairs(sessions=[], a=[], b=[]), Pairs(sessions=[1], a=[0], b=[0])):
        assert ratio(pairs) == statistics.Estimate(None, None, None)  # type: ignore[operator]
