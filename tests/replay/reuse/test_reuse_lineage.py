"""Requests that hold only what is new: the ledger sees the prompt that the model saw."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import captures
import pytest
from websocket_ends import answer, create

from replay.reuse import lineage, survey
from replay.reuse.ledger import Row
from replay.reuse.survey import Asked
from storage import exchanges, reuse_rows
from storage import lineage as links
from storage.records import Arrival, Exchange, Request, Response, Transport
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, tokens, wire

SECOND = 10**9
BEGAN_NS = 1_780_000_000 * SECOND
TOOL = {"type": "function", "name": "shell", "description": "Runs a command.", "parameters": {"type": "object"}}
OTHER_TOOL = TOOL | {"name": "read"}


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    with Trace.open(tmp_path / "lineage.trace", create=True) as opened:
        yield opened


def exchange(number: int, body: bytes, said: list[bytes], transport: Transport = Transport.WS) -> Exchange:
    """One response, a second after the one before."""
    arrivals = tuple(Arrival(SECOND // 4 + at, message if at == 0 else b"\n" + message) for at, message in enumerate(said))
    if transport is Transport.HTTP1:
        arrivals = tuple(Arrival(SECOND // 4 + at, b"data: " + message + b"\n\n") for at, message in enumerate(said))
    return Exchange(
        started_ns=BEGAN_NS + number * SECOND,
        request=Request(method="GET" if transport is Transport.WS else "POST", url="http://up/v1/responses", headers=(), body=body),
        sent_ns=1000,
        response=Response(status=200, headers=(), headers_at_ns=2000, arrivals=arrivals),
        ended_ns=SECOND // 2,
        transport=transport,
    )


def ledger(trace: Trace, *recorded: Exchange) -> tuple[Row, ...]:
    writer = Writer(trace, wire.split)
    for each in recorded:
        writer.put(each)
    writer.close()
    reading.catch_up(trace)
    return survey.ledger_of(trace, Asked()).rows


def count(body: dict[str, Any]) -> int:
    """Tokens of a request that holds all, as the ledger counts them."""
    found = tokens.prompt_ids(Request(method="POST", url="http://up/v1/responses", headers=(), body=json.dumps(body).encode()))
    assert found is not None
    return sum(len(ids) for _, ids in found)


def item(body: bytes) -> Any:
    return json.loads(body)["input"][0]


def output(said: list[bytes]) -> Any:
    return json.loads(said[-1])["response"]["output"][0]


@pytest.mark.parametrize("tools", [None, [TOOL]], ids=["tools held by the server", "tools sent again"])
def test_a_prompt_is_what_was_said_before_and_what_is_new(trace: Trace, tools: list[Any] | None) -> None:
    """Prewarm, then turns: each has the tokens that the same conversation sent whole has, answers item by item."""
    more: dict[str, Any] = {} if tools is None else {"tools": tools}
    bodies = [
        create(1, input=[], generate=False, tools=[TOOL], instructions="Be brief."),
        create(1, before="resp_0", text="first " * 30, **more | ({} if tools is None else {"instructions": "Be brief."})),
        create(1, before="resp_1", text="second " * 20, **more | ({} if tools is None else {"instructions": "Be brief."})),
    ]
    answers = [answer("resp_0", ()), answer("resp_1"), answer("resp_2")]
    whole = {"tools": [TOOL], "instructions": "Be brief.", "input": [item(bodies[1])]}
    prompts = [count(whole), count(whole | {"input": [item(bodies[1]), output(answers[1]), item(bodies[2])]})]
    for said, tokens_said in zip(answers[1:], prompts, strict=True):
        final = json.loads(said[-1])
        final["response"]["usage"]["input_tokens"] = tokens_said
        said[-1] = json.dumps(final).encode()
    _, first, second = ledger(
        trace, *(exchange(number, body, said) for number, (body, said) in enumerate(zip(bodies, answers, strict=True)))
    )
    assert [(row.prompt_tokens, row.estimated) for row in (first, second)] == [(prompts[0], False), (prompts[1], False)]
    assert (first.ideal, second.ideal) == (count(whole | {"input": []}), prompts[0])
    assert (first.broken, second.broken) == (0, 0)


def test_a_conversation_sent_whole_after_all_finds_what_was_there(trace: Trace) -> None:
    """An agent that loses its socket sends everything over HTTP: the same prompt, so nothing is lost."""
    first, second = create(1, text="first " * 30), create(1, before="resp_1", text="second " * 20)
    said = answer("resp_1")
    resent = json.dumps({"model": "gpt-5", "stream": True, "input": [item(first), output(said), item(second)]}).encode()
    sent = [exchange(1, first, said), exchange(2, second, answer("resp_2")), exchange(3, resent, answer("resp_3"), Transport.HTTP1)]
    rows = ledger(trace, *sent)
    assert (rows[2].ideal, rows[2].prompt_tokens, rows[1].prompt_tokens) == (100, 100, 100)


def test_new_tools_take_the_place_of_the_old(trace: Trace) -> None:
    """Tools come first in a prompt: with other tools nothing of it stands where it stood."""
    sent = [
        exchange(1, create(1, text="first " * 30, tools=[TOOL]), answer("resp_1")),
        exchange(2, create(1, before="resp_1", tools=[OTHER_TOOL]), answer("resp_2")),
        exchange(3, create(1, before="resp_2", tools=[OTHER_TOOL]), answer("resp_3")),
    ]
    _, second, third = ledger(trace, *sent)
    assert second.cause == "tools_changed"
    assert (second.ideal or 0) < 20 < 70 < (third.ideal or 0)
    assert not third.broken


def test_tools_among_what_was_said_stay_there(trace: Trace) -> None:
    """Codex brings tools as an input item, once: they are part of what is held."""
    brought = {"type": "additional_tools", "role": "developer", "tools": [TOOL | {"description": "Runs. " * 50}]}
    first = create(1)
    first = json.dumps(json.loads(first) | {"input": [brought, item(first)], "tools": [OTHER_TOOL]}).encode()
    sent = [exchange(1, first, answer("resp_1")), exchange(2, create(1, before="resp_1", tools=[OTHER_TOOL]), answer("resp_2"))]
    _, second = ledger(trace, *sent)
    assert (second.broken, (second.ideal or 0) > 80) == (0, True)


def test_an_answer_that_is_not_here_leaves_the_prompt_unknown(trace: Trace) -> None:
    """What is new is not taken for the whole; nor is what goes on from it."""
    sent = [
        exchange(1, create(1, before="resp_elsewhere"), answer("resp_1")),
        exchange(2, create(1, before="resp_1"), answer("resp_2")),
    ]
    rows = ledger(trace, *sent)
    assert [(row.prompt_tokens, row.ideal, row.broken) for row in rows] == [(100, None, None)] * 2
    assert list(links.links(trace).values()) == [None, 1]
    assert reuse_rows.is_complete(trace, survey.VERSION)


def test_an_id_given_twice_means_the_answer_before(trace: Trace) -> None:
    """Servers of tests number their answers anew: the latest before the request is meant."""
    sent = [exchange(number, create(1), answer("resp_1")) for number in (1, 2, 4)]
    ledger(trace, *sent, exchange(3, create(1, before="resp_1"), answer("resp_9")))
    asked = next(row.id for row in exchanges.listing(trace) if row.started_ns == BEGAN_NS + 3 * SECOND)
    found = links.links(trace)[asked]
    assert next(row.started_ns for row in exchanges.listing(trace) if row.id == found) == BEGAN_NS + 2 * SECOND


def test_equal_elements_behind_equal_paths_have_equal_names() -> None:
    """Two requests that go on alike from one prompt share it to the end."""
    names = lineage.Names()
    one, two = names.behind((4, 8), [("a",), ("b",)]), names.behind((4, 8), [("a",), ("c",)])
    assert one[:3] == two[:3]
    assert one[3] != two[3]
    assert names.made[one[3]] == ("b",)
    assert names.behind((), [("a",)]) != one[2:3]


@captures.needed
def test_threads_that_a_server_holds(trace: Trace) -> None:
    """pi names the message it goes on from and sends neither tools nor system: they are of the prompt all the same."""
    rows = ledger(trace, *(each.exchange for each in captures.load("pi-1.6.0/threads_basic")))
    turned = [row for row in rows[1:] if row.kind == "turn"]
    assert len(turned) >= 4
    assert all((row.ideal or 0) > 0.9 * (row.prompt_tokens or 0) for row in turned)


@captures.needed
@pytest.mark.parametrize("name", ["codex/05b_ws_429", "codex/08_ws_resume"])
def test_codex_sends_again_what_was_rebuilt(trace: Trace, name: str) -> None:
    """After a lost socket and after a resume Codex sends the whole conversation: token for token what its lineage said."""
    rows = ledger(trace, *(each.exchange for each in captures.load(name)))
    assert sum(row.broken or 0 for row in rows) == 0
    turns = [row for row in rows if row.kind == "turn"][1:]
    assert all((row.ideal or 0) > 0.97 * (row.prompt_tokens or 0) for row in turns)
