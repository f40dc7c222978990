"""The one percentile rule, and intervals that take the session as the unit.

Pure, numpy only. Turns of one session are alike (metrics.md: the per-request standard error is 2-3 times too small), so an interval
comes from drawing whole sessions again and again, with a fixed seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DRAWS = 2000
SEED = 20260701
COVERAGE = 0.95
LEAST_TAIL = 5
"""A quantile q is trusted only when n * (1 - q) reaches this."""
FEWEST_SESSIONS = 2
"""An interval over sessions needs at least so many."""

type Floats = npt.NDArray[np.float64]
type Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Quantiles of a sample; None when it is empty. `too_small`: names of the quantiles that n is too small for."""

    n: int
    p50: float | None
    p90: float | None
    p99: float | None
    too_small: tuple[str, ...]


QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def percentile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation on the sorted sample at (n - 1) * q (numpy's default, Hyndman and Fan's type 7). n >= 1."""
    place = (len(ordered) - 1) * q
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def is_too_small(n: int, q: float) -> bool:
    """Whether fewer than five values lie beyond the quantile."""
    return n * (1 - q) < LEAST_TAIL - 1e-9


def distribution(values: Sequence[float]) -> Distribution:
    """The quantiles that are printed of a sample in any order."""
    ordered = sorted(values)
    found = {name: percentile(ordered, q) if ordered else None for name, q in QUANTILES}
    small = tuple(name for name, q in QUANTILES if is_too_small(len(ordered), q))
    return Distribution(n=len(ordered), p50=found["p50"], p90=found["p90"], p99=found["p99"], too_small=small)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Paired values of two arms, with the session each pair belongs to."""

    sessions: Sequence[int]
    a: Sequence[float]
    b: Sequence[float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio b/a and its interval; None where it cannot be said."""

    ratio: float | None
    low: float | None
    high: float | None


def median_ratio(pairs: Pairs, *, draws: int = DRAWS, seed: int = SEED) -> Estimate:
    """The median of b/a over pairs. Pairs without two positive values have no ratio and are left out."""
    a, b, sessions = _positive(pairs)
    if a.size == 0:
        return Estimate(None, None, None)
    ratios = _Pool(np.log(b / a), sessions)
    sampled = np.array([ratios.quantile(0.5, weights) for weights in _draws(ratios.clusters, draws, seed)])
    return _estimate(ratios.quantile(0.5, np.ones(ratios.clusters, dtype=np.int64)), sampled, ratios.clusters)


def quantile_ratio(pairs: Pairs, q: float, *, draws: int = DRAWS, seed: int = SEED) -> Estimate:
    """The ratio of the arms' pooled quantiles, both from the same resamples of sessions."""
    a, b, sessions = _positive(pairs)
    if a.size == 0:
        return Estimate(None, None, None)
    arm_a, arm_b = _Pool(np.log(a), sessions), _Pool(np.log(b), sessions)
    sampled = np.array([arm_b.quantile(q, w) - arm_a.quantile(q, w) for w in _draws(arm_a.clusters, draws, seed)])
    once = np.ones(arm_a.clusters, dtype=np.int64)
    return _estimate(arm_b.quantile(q, once) - arm_a.quantile(q, once), sampled, arm_a.clusters)


def sum_ratio(pairs: Pairs, *, draws: int = DRAWS, seed: int = SEED) -> Estimate:
    """The ratio of the arms' sums."""
    a, b = np.asarray(pairs.a, dtype=np.float64), np.asarray(pairs.b, dtype=np.float64)
    if a.size == 0 or a.sum() <= 0 or b.sum() <= 0:
        return Estimate(None, None, None)
    _, cluster = np.unique(np.asarray(pairs.sessions), return_inverse=True)
    by_a, by_b = np.bincount(cluster, a), np.bincount(cluster, b)
    weights = np.stack(list(_draws(len(by_a), draws, seed)))
    tops, bottoms = weights @ by_b, weights @ by_a
    usable = (tops > 0) & (bottoms > 0)
    return _estimate(float(np.log(b.sum() / a.sum())), np.log(tops[usable] / bottoms[usable]), len(by_a))


def _positive(pairs: Pairs) -> tuple[Floats, Floats, Ints]:
    a, b = np.asarray(pairs.a, dtype=np.float64), np.asarray(pairs.b, dtype=np.float64)
    usable = (a > 0) & (b > 0)
    return a[usable], b[usable], np.asarray(pairs.sessions, dtype=np.int64)[usable]


def _estimate(log_ratio: float, sampled: Floats, sessions: int) -> Estimate:
    """From logarithms back to ratios; the interval holds the estimate by construction of percentiles, or is stretched to it.

    One session drawn again and again is always itself: it says nothing of how sessions differ, so it has no interval.
    """
    if sessions < FEWEST_SESSIONS:
        return Estimate(float(np.exp(log_ratio)), None, None)
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(sampled, [tail, 1 - tail])
    return Estimate(float(np.exp(log_ratio)), float(np.exp(min(low, log_ratio))), float(np.exp(max(high, log_ratio))))


def _draws(clusters: int, draws: int, seed: int) -> list[Ints]:
    """How often each session is in each resample."""
    random = np.random.default_rng(seed)
    picked = random.integers(0, clusters, size=(draws, clusters))
    return [np.bincount(row, minlength=clusters).astype(np.int64) for row in picked]


class _Pool:
    """Values sorted once, so that a quantile of a resample is one cumulative sum and no sort."""

    def __init__(self, values: Floats, sessions: Ints) -> None:
        order = np.argsort(values, kind="stable")
        names, cluster = np.unique(sessions, return_inverse=True)
        self._values, self._cluster, self.clusters = values[order], cluster[order], len(names)

    def quantile(self, q: float, weights: Ints) -> float:
        """The quantile of the sample in which session i stands `weights[i]` times, by the rule of `percentile`."""
        upto = np.cumsum(weights[self._cluster])
        place = (int(upto[-1]) - 1) * q
        below = int(place)
        at = np.searchsorted(upto, [below, min(below + 1, int(upto[-1]) - 1)], side="right")
        low, high = self._values[at]
        return float(low + (high - low) * (place - below))
