"""A recorded agent replayed against a real llama.cpp: its own cached-token counts grow turn by turn, and warm turns start far sooner."""

import os
import socket
from pathlib import Path
from typing import Any

import agent_installs
import llama_server
import pytest
import real_agents
from real_agents import Agent, listed

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

OUTPUT_TOKENS = 16


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@pytest.mark.parametrize("agent", [real_agents.CLAUDE_CODE, real_agents.MINI_SWE_AGENT], ids=lambda agent: agent.client)
def test_a_recorded_agent_on_a_real_llama_cpp(agent: Agent, tmp_path: Path) -> None:
    """The server reuses all of the prompt but what is new in it, says so in its usage, and the ledger reads it."""
    trace = tmp_path / "agent.trace"
    try:
        with real_agents.simulator(tmp_path / "truth.jsonl") as upstream:
            recorded = real_agents.record(agent, tmp_path / agent.client, trace, upstream)
        assert recorded.returncode == 0, recorded.stderr[-2000:]
        with llama_server.running(free_port(), tmp_path / "llama.log") as url:
            # A model with random weights never ends by itself, and requests that ask for thinking keep their own limit.
            changed = ("--model", llama_server.ALIAS, "--set", f"max_tokens={OUTPUT_TOKENS}", "--length", "free")
            summary = listed(trace, "replay", "latest", "--target", url, *changed, "--only-turns")
    except agent_installs.NotToBeHad as reason:
        pytest.skip(str(reason))
    assert (summary["turns"], summary["failed"]) == (5, 0)
    engine = summary["engine"]
    assert (engine["engine"], engine["prompt_tokens"], engine["cached_tokens"]) == (
        "llama_cpp",
        summary["prompt_tokens"],
        summary["cached_tokens"],
    )
    rows = listed(trace, "exchanges", summary["run"])
    _shown(agent, rows)
    prompts = [row["prompt_tokens"] for row in rows]
    cached = [row["cached_tokens"] for row in rows]
    assert cached[0] == 0
    assert cached == sorted(set(cached))
    # What the server has seen of a prompt is at least the prompt before; the template's own few tokens may differ at the seam.
    assert all(now >= before - 8 for now, before in zip(cached[1:], prompts, strict=False))
    ledger = listed(trace, "reuse", summary["run"], "--rules", "llama_cpp")
    assert ledger["totals"]["reported"] == sum(cached) == summary["cached_tokens"]
    assert ledger["totals"]["reported_coverage"] == 1
    if agent is real_agents.CLAUDE_CODE:
        assert rows[0]["ttft_ms"] > 3 * max(row["ttft_ms"] for row in rows[1:])


def _shown(agent: Agent, rows: list[dict[str, Any]]) -> None:
    """The rows of docs/guide/replay-on-llama-cpp.md, appended where PLAYHEAD_FIGURES says."""
    place = os.environ.get("PLAYHEAD_FIGURES")
    if not place:
        return
    with Path(place).open("a") as figures:
        for number, row in enumerate(rows, 1):
            ttft = "-" if row["ttft_ms"] is None else f"{row['ttft_ms']:.0f}"
            figures.write(f"| {agent.client} | {number} | {row['prompt_tokens']} | {row['cached_tokens']} | {ttft} |\n")
