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


@pytest.mark.parametrize("agent", real_agents.ALL, ids=lambda agent: agent.client)
def test_a_real_agent_completes_a_task(agent: Agent, tmp_path: Path) -> None:
    """It writes the program by its own tools; one session holds its turns; the simulator's log and the trace agree."""
    trace, truth = tmp_path / "agent.trace", tmp_path / "truth.jsonl"
    with real_agents.simulator(truth) as upstream:
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
    rows = [row for row in listed(trace, "exchanges") if row["dialect"] and row["method"] == "POST"]
    _as_served(rows, served)
    _reused(agent, rows)
    _report(agent, rows)
    assert real_agents.KEY.encode() not in trace.read_bytes()
    subprocess.run([*PLAYHEAD, "verify", "--trace", str(trace)], capture_output=True, timeout=60, check=True)


def _one_session(agent: Agent, trace: Path) -> None:
    (session,) = listed(trace, "sessions")
    turns = agent.calls.count("turn")
    assert (session["client"], session["turns"], session["side_calls"]) == (agent.client, turns, len(agent.calls) - turns)
    assert session["threads"] == 1


def _as_served(rows: list[dict[str, Any]], served: list[dict[str, Any]]) -> None:
    """Each request byte for byte as the server got it, with the tokens that it counted."""
    said = {row["request_sha256"]: row for row in served}
    assert len(rows) == len(served)
    for row in rows:
        assert row["state"] == "complete"
        true = said[row["request_sha256"]]
        assert [row[key] for key in ("prompt_tokens", "cached_tokens", "output_tokens")] == [
            true[key] for key in ("prompt_tokens", "cached_tokens", "output_tokens")
        ]


def _reused(agent: Agent, rows: list[dict[str, Any]]) -> None:
    """Every turn reuses more than the one before; tool-calling agents end with nearly the whole prompt from the cache."""
    assert sorted(row["kind"] for row in rows) == sorted(agent.calls)
    cached = [row["cached_tokens"] for row in rows if row["kind"] == "turn"]
    assert cached == sorted(set(cached))
    last = [row for row in rows if row["kind"] == "turn"][-1]
    assert last["cached_tokens"] / last["prompt_tokens"] > (0.5 if agent.client == "aider" else 0.9)


def _report(agent: Agent, rows: list[dict[str, Any]]) -> None:
    """The row of docs/guide/real-agents.md, appended where PLAYHEAD_FIGURES says."""
    place = os.environ.get("PLAYHEAD_FIGURES")
    if not place:
        return
    turns = [row for row in rows if row["kind"] == "turn"]
    shown = ", ".join(f"{row['cached_tokens']}/{row['prompt_tokens']}" for row in turns)
    dialects = "+".join(sorted({row["dialect"] for row in rows}))
    with Path(place).open("a") as figures:
        figures.write(f"| {agent.client} | {agent.version} | {dialects} | {len(turns)} | {len(rows) - len(turns)} | {shown} |\n")
