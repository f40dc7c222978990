"""A session recorded on a WebSocket is replayed over HTTP: the same prompts, the same reuse as of the session sent whole."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import captures
import pytest
from commands import Ended, playhead, serving
from recorded import ask, body_of
from websocket_ends import create
from websocket_talk import Talk

from storage.trace import Trace
from storage.writer import Writer
from tracer import wire

TOOL = {"type": "function", "name": "shell", "description": "Runs a command.", "parameters": {"type": "object", "properties": {}}}
MORE: dict[str, Any] = {"tools": [TOOL], "instructions": "You are an agent. " * 30}
COUNTS = ("prompt_tokens", "ideal", "predicted", "reported", "lost")


@contextmanager
def recorder(trace: Path) -> Iterator[str]:
    """A recorder in front of a fresh simulated server."""
    with serving("simulate", "--script", "plain") as (_, url), serving("record", "--upstream", url, "--trace", trace) as (_, listening):
        yield listening


def words(turn: int) -> str:
    return f"step {turn}: " + "do what has to be done " * 20


def talked(url: str) -> None:
    """A prewarm and four turns on a WebSocket, as Codex has them."""
    talk = Talk(url, deflates=True)
    before = talk.ask(create(1, input=[], generate=False, **MORE))[-1]["response"]["id"]
    for turn in range(4):
        before = talk.ask(create(1, before=before, text=words(turn), **MORE))[-1]["response"]["id"]
    talk.client.reset()


def posted(url: str) -> None:
    """The same session over HTTP."""
    said: list[Any] = []
    for turn in range(4):
        said += json.loads(create(1, text=words(turn)))["input"]
        body = {"model": "gpt-5", "store": False, "prompt_cache_key": "key-1", "stream": True, "input": said, **MORE}
        answer = body_of(ask(url, "/v1/responses", json.dumps(body).encode(), (("Content-Type", "application/json"),)))
        said += json.loads(answer.rpartition(b"data: ")[2])["response"]["output"]


def replayed(trace: Path, *more: str) -> tuple[Ended, str]:
    """A run of all that the trace holds against a fresh simulated server."""
    with serving("simulate", "--script", "plain") as (_, url):
        made = playhead("replay", "--target", url, "--gaps", "drop", "--length", "free", "--json", "--trace", trace, *more)
        return made, url


def figures(trace: Path, what: str) -> list[list[int | None]]:
    """The ledger's figures of each turn."""
    turns = playhead("reuse", what, "--rules", "vllm", "--json", "--trace", trace).document["turns"]
    return [[turn[name] for name in COUNTS] for turn in turns]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Traces of one session over a WebSocket and over HTTP."""
    folder = tmp_path_factory.mktemp("sessions")
    with recorder(folder / "ws.trace") as url:
        talked(url)
    with recorder(folder / "http.trace") as url:
        posted(url)
    return folder / "ws.trace", folder / "http.trace"


def test_the_reuse_is_that_of_the_session_sent_whole(sessions: tuple[Path, Path]) -> None:
    """Turn by turn the ideal, what the rules predict and what the server reports: of both replays alike, and as recorded."""
    (over_ws, _), (over_http, _) = map(replayed, sessions)
    assert (over_ws.code, over_http.code) == (0, 0), over_ws.err
    assert over_ws.document["turns"] == over_http.document["turns"] == 4
    found = figures(sessions[0], over_ws.document["run"])
    assert found == figures(sessions[1], over_http.document["run"]) == figures(sessions[1], "latest")
    assert [turn[2] for turn in found] == [turn[3] for turn in found]
    assert (found[0][3], (found[3][3] or 0) > 300) == (0, True)
    prewarmed, *rest = figures(sessions[0], "latest")[-4:]
    assert rest == found[1:]
    assert (prewarmed[0], (prewarmed[3] or 0) > 50) == (found[0][0], True)


def test_what_is_sent_is_what_was_recorded(sessions: tuple[Path, Path]) -> None:
    """A POST of the items as they were sent and answered; nothing of the socket is left; only what is new was recorded."""
    made, _ = replayed(sessions[0])
    rows = playhead("exchanges", made.document["run"], "--json", "--trace", sessions[0]).document
    assert [(row["method"], row["transport"], row["status"], row["kind"]) for row in rows] == [("POST", "http1", 200, "turn")] * 4
    raw = [playhead("show", row["id"], "--raw", "request", "--trace", sessions[0]).out for row in rows]
    recorded = [row for row in playhead("exchanges", "latest", "--json", "--trace", sessions[0]).document if row["kind"] == "turn"]
    told = [playhead("show", row["id"], "--raw", "request", "--trace", sessions[0]).out for row in recorded]
    bodies = [json.loads(text) for text in raw]
    assert [len(body["input"]) for body in bodies] == [1, 3, 5, 7]
    assert all(earlier["input"] == later["input"][: len(earlier["input"])] for earlier, later in pairwise(bodies))
    item = told[1][told[1].index("[{") + 1 : told[1].index("}]}]") + 3]
    assert item in raw[1]
    assert item in raw[3]
    assert bodies[3]["stream"] is True
    assert not {"type", "previous_response_id", "generate"} & set(bodies[3])


def test_it_is_declared(sessions: tuple[Path, Path]) -> None:
    """In a dry run, before a run, and with the run; prewarms are counted apart."""
    dry = playhead("replay", "--target", "http://127.0.0.1:9", "--dry-run", "--trace", sessions[0])
    assert "4 turns recorded on WebSocket are sent over HTTP with the whole input" in dry.err
    assert "prewarm on a WebSocket" in " ".join(dry.out.split())
    made, _ = replayed(sessions[0])
    assert "4 turns recorded on WebSocket are sent over HTTP with the whole input" in made.err
    assert made.document["left_out"]["prewarm"] == 1
    told = playhead("replay", "--target", "http://127.0.0.1:9", "--dry-run", "--json", "--trace", sessions[0]).document
    assert "whole_input" in [edit["edit"] for edit in told["edits"]]
    plain = playhead("replay", "--target", "http://127.0.0.1:9", "--dry-run", "--json", "--trace", sessions[1])
    assert "whole_input" not in plain.out


def test_a_run_of_it_reports_and_compares(sessions: tuple[Path, Path]) -> None:
    """Its turns are turns like any other."""
    first, second = (replayed(sessions[0])[0].document["run"] for _ in range(2))
    compared = playhead("compare", first, second, "--json", "--trace", sessions[0])
    assert compared.code in (0, 1)
    assert "ttft_ms" in compared.out or "interval" in compared.err
    report = playhead("report", first, "--format", "markdown", "--trace", sessions[0])
    assert report.code == 0, report.err
    assert "WebSocket" in report.out


@captures.needed
@pytest.mark.parametrize("name", ["codex/08_ws_resume", "copilot/03_responses_ws_then_resume", "pi-1.6.0/threads_basic"])
def test_what_real_agents_said_is_replayed(tmp_path: Path, name: str) -> None:
    """Every turn is answered, and the server reuses what the rules say of the session: WebSockets of Codex and Copilot, threads of pi."""
    path = tmp_path / "captured.trace"
    with Trace.open(path, create=True) as trace, closing(Writer(trace, wire.split)) as writer:
        for each in captures.load(name):
            writer.put(each.exchange)
    made, _ = replayed(path)
    assert (made.code, made.document["failed"]) == (0, 0), made.err
    turns = playhead("reuse", made.document["run"], "--rules", "vllm", "--json", "--trace", path).document["turns"]
    assert len(turns) >= 4
    assert [turn["predicted"] for turn in turns] == [turn["reported"] for turn in turns]
    assert sum(turn["reported"] for turn in turns) > 0.5 * sum(turn["prompt_tokens"] for turn in turns)
