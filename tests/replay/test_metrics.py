"""Each figure is what its definition says, and None where it cannot be said."""

from dataclasses import replace
from typing import Any

import pytest

from replay import metrics
from replay.metrics import Measured
from storage.records import ExchangeId, ExchangeRow, Marks, RunId, Usage

MS = 1_000_000
ROW = ExchangeRow(
    id=ExchangeId(1), session=1, thread=1, agent="main", parent_thread=None, number=1, kind="turn", dialect="openai_chat",
    transport="http1", method="POST", url="http://a/v1/chat/completions", model="m", status=200,
    state="complete", abort_by=None, retry_of=None,
    started_ns=1_000 * MS, ended_ns=130 * MS, headers_ns=5 * MS, sent_ns=2 * MS,
    marks=Marks(first_byte_ns=6 * MS, first_content_ns=60 * MS, first_output_ns=70 * MS, first_text_ns=80 * MS, last_content_ns=100 * MS,
                content_reads=5),
    usage=Usage(prompt=100, cached=64, output=11), stop="stop", streamed=True, error=None, request_bytes=10, request_sha256="0",
    response_bytes=20, response_sha256="0", chunks=3, run=RunId(1), source_exchange=ExchangeId(9), copy=0, ready_ns=997 * MS,
)  # fmt: skip
SOURCE = replace(ROW, usage=Usage(output=10), run=None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ttft_ms", 60), ("ttft_ready_ms", 63), ("ttfo_ms", 70), ("ttfb_ms", 6), ("e2e_ms", 100), ("close_ms", 130), ("itl_ms", 4),
        ("lag_ms", 3),
        ("client_delay_ms", 2), ("tokens_per_read", 2.2), ("output_tokens", 11), ("osl_deviation", 0.1), ("uncached_tokens", 36),
    ],
)  # fmt: skip
def test_each_figure_is_its_definition(name: str, expected: float) -> None:
    """Worked out by hand from one exchange."""
    assert metrics.value(metrics.named(name), Measured(ROW, SOURCE)) == pytest.approx(expected)


def test_every_metric_is_in_the_test_above_and_in_the_reference() -> None:
    """A metric nobody checks cannot be added."""
    assert len(metrics.METRICS) == 13
    assert all(f"| `{metric.name}` |" in metrics.reference() for metric in metrics.METRICS)


@pytest.mark.parametrize("name", [metric.name for metric in metrics.METRICS])
def test_what_is_not_known_is_none(name: str) -> None:
    """Never 0."""
    unknown = replace(ROW, marks=Marks(), usage=Usage(), ended_ns=None, sent_ns=None, ready_ns=None)
    assert metrics.value(metrics.named(name), Measured(unknown)) is None


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": 429}, "status 429"),
        ({"status": None, "state": "error"}, "no answer"),
        ({"status": None, "state": "error", "error": "connection refused"}, "no answer (connection refused)"),
        ({"state": "truncated"}, "truncated"),
        ({"state": "upstream_aborted"}, "upstream_aborted"),
        ({"error": "overloaded"}, "error in the stream"),
        ({}, None),
    ],
)
def test_a_failed_exchange_has_a_reason_and_no_latency_but_its_lag(changed: dict[str, Any], reason: str | None) -> None:
    """It is counted, never averaged in."""
    row = Measured(replace(ROW, **changed))
    assert metrics.failure_of(row.row) == reason
    assert metrics.value(metrics.named("ttft_ms"), row) == (None if reason else 60)
    assert metrics.value(metrics.named("lag_ms"), row) == 3


@pytest.mark.parametrize(
    "changed",
    [
        {"streamed": False},
        {"streamed": None},
        {"usage": Usage(output=1)},
        {"usage": Usage()},
        {"marks": replace(ROW.marks, content_reads=1)},
    ],
)
def test_there_is_no_time_per_token_where_tokens_did_not_stream(changed: dict[str, Any]) -> None:
    """One read, one token or an unknown number of them."""
    assert metrics.value(metrics.named("itl_ms"), Measured(replace(ROW, **changed))) is None


def test_an_impossible_figure_is_shown_not_clamped() -> None:
    """More cached than prompt is the server's error, and must be seen."""
    row = replace(ROW, usage=Usage(prompt=10, cached=12))
    assert metrics.value(metrics.named("uncached_tokens"), Measured(row)) == -2


def test_gaps_between_reads_count_a_read_once() -> None:
    """Deltas of one read have one stamp."""
    assert metrics.content_gaps_ms([5 * MS, 5 * MS, 9 * MS, 12 * MS]) == [4, 3]
    assert metrics.content_gaps_ms([]) == []


def test_makespan_is_from_the_first_due_to_the_last_close() -> None:
    """A failed exchange took its time too; without any end there is no makespan."""
    later = replace(ROW, started_ns=2_000 * MS, ready_ns=1_999 * MS, status=500)
    assert metrics.makespan_s([ROW, later]) == pytest.approx(1.133)
    assert metrics.makespan_s([replace(ROW, ready_ns=None)]) == pytest.approx(0.13)
    assert metrics.makespan_s([]) is None


def test_a_total_of_nothing_known_is_none() -> None:
    """And of a reported 0 it is 0."""
    assert metrics.total([None, None]) is None
    assert metrics.total([None, 0]) == 0
    assert metrics.total([1, None, 2]) == 3


def test_a_spread_is_of_the_known_figures() -> None:
    """n says how many."""
    assert (
        metrics.spread(
            metrics.named("ttft_ms"), [Measured(ROW), Measured(replace(ROW, marks=Marks())), Measured(replace(ROW, status=500))]
        ).n
        == 1
    )
