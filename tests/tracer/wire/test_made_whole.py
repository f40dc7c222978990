"""What a server holds after an answer, and the request that says all of it: streamed and whole answers, odd bodies."""

import json
from typing import Any

import pytest

from storage.records import Arrival, Exchange, Request, Response
from tracer.wire import lineage
from tracer.wire.contract import Held

RESPONSES, MESSAGES = "openai_responses", "anthropic_messages"


def exchange(path: str, body: Any, answer: bytes) -> Exchange:
    request = Request(method="POST", url=f"http://x{path}", headers=(), body=body if isinstance(body, bytes) else json.dumps(body).encode())
    return Exchange(
        started_ns=0, request=request, response=Response(status=200, headers=(), headers_at_ns=1, arrivals=(Arrival(2, answer),))
    )


def events(*said: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), json.dumps(each).encode()) for each in said)


ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
BLOCKS = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "S"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t1", "name": "ls", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"a": '}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "t2", "name": "pwd", "input": {}}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": ""}},
    {"type": "content_block_start", "index": 4, "content_block": {"type": "redacted_thinking", "data": "R"}},
    {"type": "content_block_start", "index": 5, "content_block": {"type": "text", "text": ""}},
    {"type": "message_stop"},
]
WHOLE_BLOCKS = [
    {"type": "thinking", "thinking": "Hm", "signature": "S"},
    {"type": "text", "text": "ab"},
    {"type": "tool_use", "id": "t1", "name": "ls", "input": {"a": 1}},
    {"type": "tool_use", "id": "t2", "name": "pwd", "input": {}},
    {"type": "redacted_thinking", "data": "R"},
]


@pytest.mark.parametrize(
    "answer",
    [
        events({"type": "response.output_item.done", "output_index": 0, "item": ITEM}, {"type": "response.completed", "response": {}}),
        events({"type": "response.completed", "response": {"output": [ITEM]}}),
        json.dumps({"id": "resp_1", "output": [ITEM]}).encode(),
    ],
    ids=["item by item", "in the last word", "unstreamed"],
)
def test_items_are_held_as_they_came(answer: bytes) -> None:
    """However the answer came; a text is what the user says."""
    held = lineage.held(RESPONSES, exchange("/v1/responses", {"input": "hi", "instructions": "Be."}, answer), Held())
    assert [json.loads(item) for item in held.said] == [{"role": "user", "content": "hi"}, ITEM]
    whole = lineage.whole(RESPONSES, exchange("/v1/responses", {"input": [], "previous_response_id": "resp_1"}, b"").request, held)
    assert json.loads(whole.body) == {"input": [{"role": "user", "content": "hi"}, ITEM], "stream": True, "instructions": "Be."}


@pytest.mark.parametrize("streamed", [True, False])
def test_blocks_make_one_message(streamed: bool) -> None:
    """Text, thinking with its signature, calls with their arguments; markers of earlier messages are gone, a text without text too."""
    message = {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
    body = {"messages": [message], "system": "Be.", "tools": [], "thread": {"type": "create"}}
    answer = events(*BLOCKS) if streamed else json.dumps({"type": "message", "content": WHOLE_BLOCKS}).encode()
    held = lineage.held(MESSAGES, exchange("/v1/messages", body, answer), Held())
    assert json.loads(held.said[1]) == {"role": "assistant", "content": WHOLE_BLOCKS}
    assert b"cache_control" not in held.said[0]
    more = {"messages": [message], "thread": {"type": "continue", "previous_message_id": "m"}, "max_tokens": 9}
    whole = json.loads(lineage.whole(MESSAGES, exchange("/v1/messages", more, b"").request, held).body)
    assert (whole["system"], whole["max_tokens"], len(whole["messages"]), whole["messages"][2]) == ("Be.", 9, 3, message)
    assert not {"thread", "tools"} & set(whole)


def test_an_answer_that_never_came_adds_nothing() -> None:
    """What was asked is held all the same."""
    for dialect, path, body in (
        (RESPONSES, "/v1/responses", {"input": "hi"}),
        (MESSAGES, "/v1/messages", {"messages": [{"role": "user"}]}),
    ):
        silent = Exchange(started_ns=0, request=exchange(path, body, b"").request)
        assert len(lineage.held(dialect, silent, Held()).said) == 1


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (RESPONSES, b"{}"),
        (RESPONSES, b'{"input": 3}'),
        (RESPONSES, b"no JSON"),
        (MESSAGES, b"{}"),
        (MESSAGES, b"[]"),
        ("openai_chat", b'{"messages": []}'),
    ],
)
def test_what_cannot_be_made_whole_is_said(dialect: str, body: bytes) -> None:
    """Nothing is guessed."""
    asked = exchange("/v1/x", body, b"")
    with pytest.raises(ValueError):
        lineage.whole(dialect, asked.request, Held())
    with pytest.raises(ValueError):
        lineage.held(dialect, asked, Held())
