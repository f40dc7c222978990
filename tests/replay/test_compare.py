"""Two runs: paired, judged by the interval, refused when they did not play the same thing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from replay import compare
from replay.compare import Arm
from replay.statistics import Estimate
from storage.errors import PlayheadError
from storage.records import ExchangeId, ExchangeRow, Marks, Run, RunId, Usage

MS = 1_000_000
SETTINGS: dict[str, Any] = {
    "plan": {"sha256": "abcdef0123456789", "sessions": 24, "turns": 72},
    "policy": {"gaps": "drop", "speed": 1.0, "concurrency": 6, "copies": 1, "length": "free", "history": "recorded", "cache": "as-found"},
    "edits": [{"edit": "url", "to": "http://a"}],
}


def run(number: int, settings: dict[str, Any] = SETTINGS) -> Run:
    return Run(id=RunId(number), started_ns=0, ended_ns=1, target="http://a", settings=settings, summary=None)


def row(source: int, session: int, ttft_ms: float, **changed: Any) -> ExchangeRow:
    """A replayed turn of ten tokens, 2 ms apart."""
    first_ns = round(ttft_ms * MS)
    made = ExchangeRow(
        id=ExchangeId(1000 + source), session=session, thread=session, agent="main", parent_thread=None, number=1, kind="turn",
        dialect="openai_chat", transport="http1", method="POST", url="http://a/v1/chat/completions", model="m", status=200,
        state="complete",
        abort_by=None, retry_of=None, started_ns=1000, ended_ns=first_ns + 20 * MS, headers_ns=MS, sent_ns=0,
        marks=Marks(first_byte_ns=MS, first_content_ns=first_ns, first_output_ns=first_ns, last_content_ns=first_ns + 18 * MS,
                    content_reads=10),
        usage=Usage(prompt=100, cached=80, output=10), stop="stop", streamed=True, error=None, request_bytes=10, request_sha256="0" * 64,
        response_bytes=20, response_sha256="0" * 64, chunks=3, run=RunId(1), source_exchange=ExchangeId(source), copy=0, ready_ns=900,
    )  # fmt: skip
    return replace(made, **changed)


def rows(scale: float, seed: int, *, sessions: int = 24, turns: int = 3, noise: float = 0.02) -> list[ExchangeRow]:
    random = np.random.default_rng(seed)
    return [row(s * turns + t, s, 60 * scale * float(random.lognormal(0, noise))) for s in range(sessions) for t in range(turns)]


def verdicts(a: list[ExchangeRow], b: list[ExchangeRow]) -> dict[str, compare.Verdict]:
    found = compare.compare(Arm(run=run(1), rows=a), Arm(run=run(2), rows=b))
    return {verdict.metric: verdict for verdict in found.verdicts}


@pytest.mark.parametrize("seed", range(5))
def test_two_samples_of_one_server_show_no_difference(seed: int) -> None:
    """Noise inside the margin is never a win."""
    said = verdicts(rows(1, 2 * seed), rows(1, 2 * seed + 1))["ttft_ms"]
    assert said.verdict == "no difference"
    assert (said.n_sessions, said.n_turns, said.weak) == (24, 72, False)


def test_a_slower_target_is_worse_and_the_other_way_round_better() -> None:
    """Ratio is b/a; the interval holds it and leaves 1 out."""
    slower = verdicts(rows(1, 1), rows(1.3, 2))["ttft_ms"]
    assert slower.verdict == "worse"
    assert slower.estimate.ratio == pytest.approx(1.3, rel=0.02)
    assert slower.estimate.low is not None
    assert slower.estimate.low > 1.2
    assert (slower.a, slower.b) == (pytest.approx(60, rel=0.03), pytest.approx(78, rel=0.03))
    assert verdicts(rows(1.3, 2), rows(1, 1))["ttft_ms"].verdict == "better"


@pytest.mark.parametrize(
    ("low", "ratio", "high", "verdict"),
    [
        (1.05, 1.10, 1.20, "worse"),
        (1.01, 1.10, 1.20, "inconclusive"),
        (0.80, 0.90, 0.95, "better"),
        (0.99, 1.00, 1.01, "no difference"),
        (1.005, 1.01, 1.015, "no difference"),
        (0.95, 1.01, 1.06, "no difference"),
        (0.70, 1.01, 1.30, "inconclusive"),
        (0.98, 1.05, 1.12, "inconclusive"),
        (1.0, 1.0, 1.0, "no difference"),
    ],
)
def test_the_verdict_is_about_the_interval(low: float, ratio: float, high: float, verdict: str) -> None:
    """All of it beyond the margin, or no winner."""
    assert compare.judge(Estimate(ratio, low, high)) == verdict


def test_nothing_measured_is_inconclusive() -> None:
    """A metric that no turn has keeps its place, with None."""
    said = verdicts([replace(r, usage=Usage()) for r in rows(1, 1)], rows(1, 2))
    assert said["cached_tokens"].verdict == "inconclusive"
    assert (said["cached_tokens"].a, said["cached_tokens"].n_turns) == (None, 0)
    assert said["itl_ms"].verdict == "inconclusive"


def test_more_cached_tokens_are_better() -> None:
    """Higher is better there, and only there."""
    more = [replace(r, usage=Usage(prompt=100, cached=95, output=10)) for r in rows(1, 2)]
    said = verdicts(rows(1, 1), more)
    assert (said["cached_tokens"].a, said["cached_tokens"].b, said["cached_tokens"].verdict) == (72 * 80, 72 * 95, "better")
    assert said["uncached_tokens"].verdict == "better"


def test_a_turn_that_failed_in_one_arm_is_left_out_of_both_and_counted() -> None:
    """A figure of a turn that the other arm never finished compares nothing."""
    b = rows(1, 2)
    b[0] = replace(b[0], status=500)
    b[1] = replace(b[1], state="truncated")
    found = compare.compare(Arm(run=run(1), rows=rows(1, 1)), Arm(run=run(2), rows=b[:-1]))
    assert found.verdicts[0].n_turns == 69
    assert (found.censored, found.failed_a, found.failed_b) == (3, {}, {"status 500": 1, "truncated": 1})


def test_tails_of_few_turns_and_few_sessions_are_said_to_be_weak() -> None:
    """p99 of 72 turns has no five values beyond it; 10 sessions are few."""
    assert verdicts(rows(1, 1), rows(1, 2))["ttft_p99_ms"].weak
    assert verdicts(rows(1, 1, sessions=10), rows(1, 2, sessions=10))["ttft_ms"].weak


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"plan": {"sha256": "other", "sessions": 10, "turns": 30}}, "10 sessions"),
        ({"policy": {**SETTINGS["policy"], "length": "cap"}}, "length: free / cap"),
        ({"policy": {**SETTINGS["policy"], "gaps": "keep"}}, "gaps: drop / keep"),
        ({"edits": [{"edit": "set", "field": "temperature", "to": 0}]}, "temperature"),
    ],
)
def test_unlike_runs_are_refused_with_what_differs(changed: dict[str, Any], named: str) -> None:
    """A verdict over two different things would be worse than none."""
    with pytest.raises(PlayheadError, match="cannot be compared") as wrong:
        compare.compare(Arm(run=run(1), rows=rows(1, 1)), Arm(run=run(2, {**SETTINGS, **changed}), rows=rows(1, 2)))
    assert named in str(wrong.value)


def test_runs_that_share_no_completed_turn_are_refused() -> None:
    """Every turn failed in one of them."""
    with pytest.raises(PlayheadError, match="share no turn"):
        compare.compare(Arm(run=run(1), rows=[row(1, 1, 60, status=500)]), Arm(run=run(2), rows=[row(1, 1, 60)]))


def test_another_model_is_no_reason_to_refuse() -> None:
    """Two targets name the same weights differently."""
    other = {**SETTINGS, "edits": [{"edit": "url", "to": "http://b"}, {"edit": "model", "to": "m2"}]}
    assert compare.differences(run(1), run(2, other)) == []


def test_a_limit_is_broken_by_a_change_that_is_larger_and_shown() -> None:
    """An estimate whose interval holds 1 breaks nothing."""
    found = compare.compare(Arm(run=run(1), rows=rows(1, 1)), Arm(run=run(2), rows=rows(1.3, 2)))
    assert compare.broken(found, [compare.limit("ttft_ms:+10%")])[0].startswith("ttft_ms grew by")
    assert compare.broken(found, [compare.limit("ttft_ms:+40%"), compare.limit("cached_tokens:-5%")]) == []
    fallen = compare.compare(Arm(run=run(1), rows=rows(1.3, 1)), Arm(run=run(2), rows=rows(1, 2)))
    assert compare.broken(fallen, [compare.limit("ttft_ms:-5%")])[0].startswith("ttft_ms fell by")
    nothing = compare.compare(Arm(run=run(1), rows=[replace(r, usage=Usage()) for r in rows(1, 1)]), Arm(run=run(2), rows=rows(1, 2)))
    assert compare.broken(nothing, [compare.limit("cached_tokens:-5%")]) == ["cached_tokens could not be compared"]


@pytest.mark.parametrize("text", ["speed:+10%", "ttft_ms", "ttft_ms:more", ":+10%"])
def test_a_limit_that_means_nothing_is_refused_with_a_hint(text: str) -> None:
    """One clear line."""
    with pytest.raises(PlayheadError) as wrong:
        compare.limit(text)
    assert wrong.value.hint


def test_one_session_has_a_ratio_but_no_interval_and_no_verdict() -> None:
    """Drawn again and again it is always itself; a limit cannot be kept by it."""
    found = compare.compare(
        compare.Arm(run=run(1), rows=rows(1, 1, sessions=1, turns=40)), compare.Arm(run=run(2), rows=rows(1.5, 2, sessions=1, turns=40))
    )
    for said in found.verdicts:
        if said.n_turns:
            assert said.estimate.ratio is not None
            assert (said.estimate.low, said.estimate.high, said.verdict, said.n_sessions) == (None, None, compare.INCONCLUSIVE, 1)
    (broken,) = compare.broken(found, [compare.limit("ttft_ms:+10%")])
    assert "no interval" in broken
