"""The figures of one run, as `replay --json` and `runs` give them.

Pure. Failed turns are counted by their reason and are in no latency; what nobody reported is None. It does not know how rows are read.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from replay import metrics
from replay.metrics import Measured
from replay.statistics import Distribution
from storage.records import ExchangeId, ExchangeRow, State

SPREAD = ("ttft_ms", "itl_ms", "e2e_ms", "lag_ms")
OUT_OF_BAND = 0.1
"""An output further than this from the recorded length is another workload."""


def summary(rows: Sequence[ExchangeRow], sources: Mapping[ExchangeId, ExchangeRow], *, planned: int) -> dict[str, Any]:
    """The figures of a run's exchanges. `planned`: turns that were to be sent, copies included."""
    ended = [row for row in rows if row.state != State.INTERRUPTED]
    turns = [Measured(row, sources.get(row.source_exchange) if row.source_exchange else None) for row in ended]
    failures = Counter(reason for row in ended if (reason := metrics.failure_of(row)) is not None)
    return {
        "turns": len(ended),
        "failed": sum(failures.values()),
        "failures": dict(failures.most_common()),
        "interrupted": len(rows) - len(ended),
        "not_sent": planned - len(rows),
        **{name: quantiles(metrics.spread(metrics.named(name), turns)) for name in SPREAD},
        "makespan_s": metrics.makespan_s(ended),
        "prompt_tokens": metrics.total(row.usage.prompt for row in ended),
        "cached_tokens": metrics.total(row.usage.cached for row in ended),
        "output_tokens": metrics.total(row.usage.output for row in ended),
        "out_of_band": _out_of_band(turns),
    }


def quantiles(found: Distribution) -> dict[str, Any]:
    """A distribution as JSON; `too_small` names the quantiles that n is too small for."""
    return {"p50": found.p50, "p90": found.p90, "p99": found.p99, "n": found.n, "too_small": list(found.too_small)}


def _out_of_band(turns: Sequence[Measured]) -> int | None:
    """Turns whose output is more than a tenth off the recorded length; None when no turn's is known."""
    known = metrics.values(metrics.named("osl_deviation"), turns)
    return sum(abs(deviation) > OUT_OF_BAND for deviation in known) if known else None
