"""What real agents sent and were answered is read without loss."""

import json
from typing import Any

import captures
import pytest
from wire_answers import check_layout

from storage.records import Transport
from tracer import wire
from tracer.wire import requests
from tracer.wire.content_encoding import decode

CALLS = ("/messages", "/chat/completions", "/responses", ":generateContent", ":streamGenerateContent")


def all_calls() -> list[tuple[str, captures.Captured]]:
    """Every captured model call, HTTP and WebSocket."""
    return [
        (name, each)
        for name in captures.names()
        for each in captures.load(name)
        if not each.omitted and each.exchange.request.body and requests.path(each.exchange.request).endswith(CALLS)
    ]


CAPTURED = all_calls()
IDS = [f"{name}:{each.id}" for name, each in CAPTURED]


@captures.needed
def test_there_are_as_many_calls_as_the_answer_key_has() -> None:
    """No request of the captures is passed over in silence."""
    wanted = {
        f"{name}:{entry['id']}"
        for name, file in captures.truth().items()
        for entry in file["requests"]
        if entry["kind"] not in ("ws_upgrade", "other")
    }
    assert wanted <= set(IDS)
    assert len(captures.names()) >= 60


@captures.needed
@pytest.mark.parametrize(("name", "captured"), CAPTURED, ids=IDS)
def test_a_captured_call_is_read(name: str, captured: captures.Captured) -> None:
    """Model and prompt are those of the body; the reply, its end and its usage those of the answer."""
    exchange = captured.exchange
    read = wire.read(exchange)
    assert read is not None
    dialect, call = read
    body = json.loads(plain(exchange.request))
    assert call.model == body.get("model", requests.path(exchange.request).split("/")[-1].split(":")[0])
    assert call.prompt or call.previous_response_id or body.get("input") == [] or body.get("generate") is False
    assert len(call.tools) >= len(body.get("tools", ())) or dialect.NAME == "gemini"
    answer = b"" if exchange.response is None else exchange.response.body
    if exchange.response is not None and exchange.response.status in (101, 200) and exchange.failure is None:
        assert call.ended
        assert call.reply or call.error or body.get("generate") is False or not body.get("input", True)
        assert call.usage.prompt is not None or not told_usage(answer)
    elif exchange.response is not None and exchange.response.status >= 400:
        assert call.ended
        assert call.error
    else:
        assert not call.ended
    assert [delta.at_ns for delta in call.deltas] == sorted(delta.at_ns for delta in call.deltas)


def plain(request: Any) -> bytes:
    """The body in the clear."""
    text = decode(request.body, requests.header(request.headers, "content-encoding"))
    assert text is not None
    return text


def told_usage(answer: bytes) -> bool:
    """Whether an answer holds token counts."""
    return any(word in answer for word in (b'"prompt_tokens"', b'"input_tokens"', b'"promptTokenCount"'))


@captures.needed
@pytest.mark.parametrize(("name", "captured"), CAPTURED, ids=IDS)
def test_a_captured_body_is_split_and_comes_back(name: str, captured: captures.Captured) -> None:
    """Elements and what stands between them are the body again; each is a JSON value, and renders as text."""
    request = captured.exchange.request
    split = wire.split(request)
    dialect = wire.dialect_of(request)
    assert split is not None
    assert dialect is not None
    assert split.body == plain(request)
    check_layout(split)
    body = json.loads(split.body)
    turns = body.get("messages") or body.get("contents") or body.get("input") or []
    assert len(split.elements) >= len(turns)
    for element in split.elements:
        raw = split.body[element.start : element.end]
        json.loads(raw)
        assert dialect.render(element.group, raw)


@captures.needed
def test_claude_code_sessions_only_grow() -> None:
    """Moving cache markers and strings turned into blocks do not split the tree: each turn's messages begin with the one's before."""
    previous: list[bytes] = []
    grown = 0
    for captured in captures.load("claude-code/manual_compact")[:4]:
        split = wire.split(captured.exchange.request)
        assert split is not None
        now = [wire.layout.kept(split.body, element) for element in split.elements if element.group == "message"]
        assert now[: len(previous)] == previous
        grown += len(now) > len(previous)
        previous = now
    assert grown == 4


@captures.needed
def test_a_message_on_a_web_socket_reads_as_a_call() -> None:
    """Codex resumes with `previous_response_id`; its answer arrives message by message."""
    found = [each for each in captures.load("codex/08_ws_resume") if each.exchange.transport is Transport.WS]
    calls = [read[1] for each in found if (read := wire.read(each.exchange))]
    assert len(calls) == 12
    assert all(call.ended and call.response_id for call in calls)
    known = {call.response_id for call in calls}
    assert sum(call.previous_response_id in known for call in calls if call.previous_response_id) >= 6
    assert calls[0].stop == "completed"
    assert any(delta.channel == "text" for call in calls for delta in call.deltas)
