"""Requests that hold only what is new are sent whole: as captures of real agents have them, with the tokens that their lineage has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captures
import pytest
from websocket_ends import answer, create

from replay import edits, wholes
from replay.edits import UnfitError
from replay.plan import Plan, PlannedTurn, plan
from replay.reuse.prompts import Prompts, fills_a_cache
from storage import exchanges, lineage
from storage.records import Arrival, Exchange, Headers, Request, Response, Transport
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, tokens, wire

SECOND = 10**9


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    with Trace.open(tmp_path / "whole.trace", create=True) as opened:
        yield opened


def planned(trace: Trace, recorded: list[Exchange]) -> Plan:
    writer = Writer(trace, wire.split)
    for each in recorded:
        writer.put(each)
    writer.close()
    reading.catch_up(trace)
    return plan(exchanges.listing(trace), links=lineage.links(trace))


def requests(trace: Trace, made: Plan) -> list[tuple[PlannedTurn, Request]]:
    recorded = wholes.Recorded(trace)
    return [(turn, recorded.request(turn)) for turn in made.turns]


def counted(request: Request) -> int:
    found = tokens.prompt_ids(request)
    assert found is not None
    return sum(len(ids) for _, ids in found)


SOCKETS = ("codex/01_builtin_default", "codex/05b_ws_429", "codex/08_ws_resume", "codex/09_ws_subagents_v2", "codex/10_ws_auto_compact",
           "copilot/03_responses_ws_then_resume", "opencode/websockets")  # fmt: skip


@captures.needed
@pytest.mark.parametrize("name", [*SOCKETS, "pi-1.6.0/threads_basic"])
def test_what_real_agents_said_is_whole(trace: Trace, name: str) -> None:
    """Each is a POST that names nothing it goes on from and has, token for token, the prompt that the ledger rebuilt."""
    made = planned(trace, [each.exchange for each in captures.load(name)])
    assert set(made.left_out) <= {"unread", "prewarm", "refused"}
    rows = [row for row in exchanges.listing(trace) if fills_a_cache(row)]
    prompts = {one.row.id: one.prompt for one in Prompts(trace).counted(rows)}
    assert any(turn.lineage for turn in made.turns) is not name.startswith("opencode")  # which sends the whole input itself
    for turn, request in requests(trace, made):
        body, prompt = json.loads(request.body), prompts[turn.source]
        assert prompt is not None
        assert counted(request) == prompt.estimate
        assert not {"previous_response_id", "generate", "type"} & set(body)
        assert (request.method, "previous_message_id" in str(body.get("thread"))) == ("POST", False)
        names = {header.lower() for header, _ in edits.headers(request.headers, turn.dialect, None)}
        assert not {header for header in names if header.startswith("sec-websocket")} | {"upgrade", "connection"} & names


@captures.needed
def test_elements_stay_as_they_were(trace: Trace) -> None:
    """An item sent in one turn stands in every later one to the byte, and so does what was answered."""
    made = planned(trace, [each.exchange for each in captures.load("codex/08_ws_resume")])
    sent = [(turn, request) for turn, request in requests(trace, made) if turn.lineage]
    for turn, request in sent:
        for source in turn.lineage:
            recorded = exchanges.load(trace, source)
            split = wire.split(recorded.request)
            assert split is not None
            items = [split.body[each.start : each.end] for each in split.elements if each.group == "item"]
            assert all(item in request.body for item in items)


def exchange(number: int, body: bytes, said: list[bytes], headers: Headers = ()) -> Exchange:
    arrivals = tuple(Arrival(SECOND // 4 + at, message if at == 0 else b"\n" + message) for at, message in enumerate(said))
    return Exchange(
        started_ns=1_780_000_000 * SECOND + number * SECOND,
        request=Request(method="GET", url="http://up/v1/responses", headers=headers, body=body),
        sent_ns=1000,
        response=Response(status=200, headers=(), headers_at_ns=2000, arrivals=arrivals),
        ended_ns=SECOND // 2,
        transport=Transport.WS,
    )


def test_heads_of_before_stand_where_there_are_none(trace: Trace) -> None:
    """Tools and instructions are the request's own, or those before; a text is what the user says; the head is a POST's."""
    tools: list[dict[str, Any]] = [{"type": "function", "name": "shell", "parameters": {}}]
    socket = (("Sec-WebSocket-Key", "x"), ("OpenAI-Beta", "responses_websockets=2026-02-06"), ("Session-Id", "one"))
    recorded = [
        exchange(1, create(1, tools=tools, instructions="Be brief.", input="hello"), answer("resp_1"), socket),
        exchange(2, create(1, before="resp_1", tools=[]), answer("resp_2")),
        exchange(3, create(1, before="resp_2", instructions="Be long."), answer("resp_3")),
    ]
    one, two, three = (request for _, request in requests(trace, planned(trace, recorded)))
    bodies = [json.loads(each.body) for each in (one, two, three)]
    assert bodies[0]["input"] == [{"role": "user", "content": "hello"}]
    assert (bodies[1]["tools"], bodies[1]["instructions"]) == (tools, "Be brief.")
    assert (bodies[2].get("tools"), bodies[2]["instructions"]) == (None, "Be long.")
    assert [len(body["input"]) for body in bodies] == [1, 3, 5]
    assert [body["stream"] for body in bodies] == [True] * 3
    assert (("Session-Id", "one") in one.headers, dict(one.headers)["Content-Type"]) == (True, "application/json")
    assert not {"Sec-WebSocket-Key", "OpenAI-Beta"} & set(dict(one.headers))


def test_a_request_that_cannot_be_made_whole_is_unfit(trace: Trace) -> None:
    """It is one failed turn, for a reason that is said."""
    made = planned(trace, [exchange(1, b'{"type":"response.create","model":"m"}', answer("resp_1"))])
    with pytest.raises(UnfitError, match="no input"):
        requests(trace, made)
