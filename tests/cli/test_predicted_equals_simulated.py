"""What the ledger predicts is what a server with known rules really reused, turn by turn."""

from pathlib import Path

import pytest
from commands import playhead, serving
from reuse_traces import body, exchange, record

from storage.trace import Trace


@pytest.fixture
def where(tmp_path: Path) -> Path:
    """Two sessions side by side that share their head; the second changes its system prompt in turn 3."""
    path = tmp_path / "recorded.trace"
    first = [exchange(turn, body(turn), None, session="1") for turn in range(1, 6)]
    second = []
    for turn in range(1, 6):
        sent = body(turn, system="You are an agent." if turn < 3 else "You are an agent. It is Tuesday.")
        second.append(exchange(turn, sent, None, session="2", start_s=turn + 0.5))
    with Trace.open(path, create=True) as trace:
        record(trace, [*first, *second])
    return path


@pytest.mark.parametrize(
    "rules",
    [("--rules", "vllm"), ("--rules", "llama_cpp"), ("--rules", "vllm", "--block", "32", "--capacity", "512")],
    ids=lambda rules: " ".join(rules),
)
def test_turn_by_turn(where: Path, rules: tuple[str, ...]) -> None:
    """A replay against the simulator: predicted and reported are equal in every turn, and something is reused."""
    with serving("simulate", *rules) as (_, url):
        run = playhead("replay", "--target", url, "--gaps", "drop", "--concurrency", "1", "--length", "free", "--json", "--trace", where)
    assert run.code == 0, run.err
    ledger = playhead("reuse", run.document["run"], *rules, "--json", "--trace", where).document
    assert len(ledger["turns"]) == 10
    assert [turn["predicted"] for turn in ledger["turns"]] == [turn["reported"] for turn in ledger["turns"]]
    assert 0 < ledger["totals"]["reported"] < ledger["totals"]["prompt_tokens"]
    assert ledger["totals"]["excess"] == 0
    assert not any(turn["estimated"] for turn in ledger["turns"])
    assert "system_changed" in [turn["cause"] for turn in ledger["turns"]]
