"""Real agents complete a task through the recorder against the simulated model, and show up as one session with the right turns."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import agent_installs
import pytest
import real_agents
from real_agents import PLAYHEAD, Agent, listed

from replay.simulator.script import PROGRAM

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]


@pytest.mark.parametrize("agent", real_agents.ALL, ids=lambda agent: f"{agent.client} over {agent.transport}")
def test_a_real_agent_completes_a_task(agent: Agent, tmp_path: Path) -> None:
    """It writes the program by its own tools; one session holds its turns; the simulator's log and the trace agree."""
    trace, truth = tmp_path / "agent.trace", tmp_path / "truth.jsonl"
    with real_agents.simulator(truth, *agent.simulated) as upstream:
        try:
            done = real_agents.record(agent, tmp_path / agent.client, trace, upstream)
        except agent_installs.NotToBeHad as reason:
            pytest.skip(f"{agent.client}: {reason}")
    assert done.returncode == 0, done.stderr[-2000:]
    written = tmp_path / agent.client / "repository" / "greeting.py"
    assert written.read_text() == PROGRAM

    served = [json.loads(line) for line in truth.read_text().splitlines()]
    assert [row["status"] for row in served] == [200] * len(agent.calls)
    _one_session(agent, trace)
    rows = [row for row in listed(trace, "exchanges") if row["dialect"]]
    told = [(row, _as_served(agent, row, served)) for row in rows]
    assert [row["kind"] for row in rows] == list(agent.calls)
    assert {row["transport"] for row in rows if row["kind"] in ("turn", "prewarm")} == {agent.transport}
    _reused(agent, [true for row, true in told if row["kind"] == "turn"])
    _report(agent, told)
    assert real_agents.KEY.encode() not in trace.read_bytes()
    subprocess.run([*PLAYHEAD, "verify", "--trace", str(trace)], capture_output=True, timeout=60, check=True)


@pytest.mark.parametrize("agent", [real_agents.CODEX, real_agents.COPILOT], ids=lambda agent: agent.client)
def test_a_session_on_a_websocket_is_replayed_over_http(agent: Agent, tmp_path: Path) -> None:
    """Its turns, made whole, are to the server the prompts that they were: the same counts, and the same reuse behind the first turn."""
    trace = tmp_path / "agent.trace"
    with real_agents.simulator(tmp_path / "truth.jsonl") as upstream:
        try:
            real_agents.record(agent, tmp_path / agent.client, trace, upstream)
        except agent_installs.NotToBeHad as reason:
            pytest.skip(f"{agent.client}: {reason}")
    with real_agents.simulator(tmp_path / "again.jsonl") as target:
        run = listed(trace, "replay", "--target", target, "--gaps", "drop", "--length", "free")
    recorded = [row for row in listed(trace, "exchanges") if row["kind"] == "turn"]
    replayed = listed(trace, "exchanges", run["run"])
    assert [row["prompt_tokens"] for row in replayed] == [row["prompt_tokens"] for row in recorded]
    assert [row["cached_tokens"] for row in replayed] == [row["cached_tokens"] for row in recorded]
    ledger = listed(trace, "reuse", run["run"], "--rules", "vllm")["turns"]
    assert [turn["predicted"] for turn in ledger] == [turn["reported"] for turn in ledger]


def _one_session(agent: Agent, trace: Path) -> None:
    (session,) = listed(trace, "sessions")
    turns = agent.calls.count("turn")
    assert (session["client"], session["turns"], session["side_calls"]) == (agent.client, turns, len(agent.calls) - turns)
    assert session["threads"] == 1


def _as_served(agent: Agent, row: dict[str, Any], served: list[dict[str, Any]]) -> dict[str, Any]:
    """What the server did with this request, which it got byte for byte; the trace has its counts, or none where none were asked for."""
    (true,) = (one for one in served if one["request_sha256"] == row["request_sha256"])
    counts = ("prompt_tokens", "cached_tokens", "output_tokens")
    expected = [None] * 3 if row["kind"] in agent.unreported else [true[count] for count in counts]
    assert row["state"] == "complete"
    assert [row[count] for count in counts] == expected
    return true


def _reused(agent: Agent, turns: list[dict[str, Any]]) -> None:
    """Every turn reuses more than the one before; tool-calling agents end with nearly the whole prompt from the cache."""
    cached = [true["cached_tokens"] for true in turns]
    assert cached == sorted(set(cached))
    assert cached[-1] / turns[-1]["prompt_tokens"] > (0.5 if agent is real_agents.AIDER else 0.9)


def _report(agent: Agent, told: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """The row of docs/guide/real-agents.md, appended where PLAYHEAD_FIGURES says."""
    place = os.environ.get("PLAYHEAD_FIGURES")
    if not place:
        return
    turns = [true for row, true in told if row["kind"] == "turn"]
    side = ", ".join(row["kind"] for row, _ in told if row["kind"] != "turn") or "-"
    shown = ", ".join(f"{true['cached_tokens']} of {true['prompt_tokens']}" for true in turns)
    with Path(place).open("a") as figures:
        figures.write(
            f"| {agent.client} {agent.version} over {agent.transport} | {turns[0]['dialect']} | {len(turns)} | {side} | {shown} |\n"
        )
