"""OpenAI Responses: read, split, rendered, changed."""

import json
from typing import Any

import pytest
from wire_answers import JSON, canonical, check_layout, dumps, event, exchange, request

from storage.records import Arrival, Exchange, Response, Transport, Usage
from tracer.wire import openai_responses as dialect
from tracer.wire.contract import Call, Changes, Delta, Media, Message, Opaque, Reasoning, Text, Tool, ToolCall, ToolResult
from tracer.wire.openai_responses import socket

PATH = "/v1/responses"
TOOL = {"type": "function", "name": "shell", "description": "Runs a command.", "parameters": {"type": "object"}}
PASS = {"internal_chat_message_metadata_passthrough": {"turn_id": "t"}}
EXEC = {"type": "custom", "name": "exec", "description": "Runs.", "format": {"type": "text"}}
SPACE = {"type": "namespace", "name": "functions", "tools": [EXEC]}
MORE_TOOLS = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [SPACE]}
INPUT: list[dict[str, Any]] = [
    MORE_TOOLS,
    {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}], **PASS},
    {"role": "user", "content": "look"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:x"}, {"type": "input_file", "file_id": "f"}, {"type": "odd"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "ENC"},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell", "arguments": '{"cmd" : "ls"}'},
    {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "a b c", **PASS},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "exec", "input": "ls", "status": "completed"},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "ENC2"},
    {"type": "item_reference", "id": "msg_9"},
]
BODY = {
    "model": "gpt-5.4",
    "instructions": "You are an agent.",
    "input": INPUT,
    "tools": [TOOL],
    "previous_response_id": "resp_0",
    "store": False,
    "stream": True,
}
USAGE = {
    "input_tokens": 900,
    "input_tokens_details": {"cached_tokens": 768, "cache_write_tokens": 100},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 920,
}
THOUGHT = {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "Hmm."}], "encrypted_content": "E"}
SAID = {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "output_text", "text": "Grüße 😀", "annotations": []}]}
ASKED = {"type": "function_call", "id": "fc_2", "call_id": "call_9", "name": "shell", "arguments": '{"cmd" : "ls"}'}
SHELL: dict[str, Any] = {"id": "resp_1", "object": "response", "model": "gpt-5.4-2026", "output": [], "error": None, "usage": None}


INCOMPLETE = {"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}}
FAILED = {"type": "response.failed", "response": {"status": "failed", "error": {"code": "server_error", "message": "Sorry"}}}


def objects() -> list[dict[str, Any]]:
    """The events of one answer."""
    return [
        {"type": "response.created", "response": {**SHELL, "status": "in_progress"}},
        {"type": "response.in_progress", "response": {**SHELL, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_2", "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hmm."},
        {"type": "response.output_item.done", "output_index": 0, "item": THOUGHT},
        {"type": "response.output_item.added", "output_index": 1, "item": {**SAID, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Grüße "},
        {"type": "response.output_text.delta", "output_index": 1, "delta": ""},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "😀"},
        {"type": "response.output_text.done", "output_index": 1, "text": "Grüße 😀"},
        {"type": "response.output_item.done", "output_index": 1, "item": SAID},
        {"type": "response.output_item.added", "output_index": 2, "item": {**ASKED, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"cmd" : '},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '"ls"}'},
        {"type": "response.function_call_arguments.done", "output_index": 2, "arguments": '{"cmd" : "ls"}'},
        {"type": "response.output_item.done", "output_index": 2, "item": ASKED},
        {"type": "response.completed", "response": {**SHELL, "status": "completed", "output": [THOUGHT, SAID, ASKED], "usage": USAGE}},
    ]


STREAM = [event(each, each["type"]) for each in objects()]
REPLY = (Reasoning("Hmm.", "E"), Text("Grüße 😀"), ToolCall("call_9", "shell", '{"cmd" : "ls"}'))
DELTAS = (
    Delta(400, "reasoning", "Hmm."),
    Delta(700, "text", "Grüße "),
    Delta(900, "text", "😀"),
    Delta(1200, "tool", "shell"),
    Delta(1300, "tool", '{"cmd" : '),
    Delta(1400, "tool", '"ls"}'),
)


def hear(*pieces: bytes, body: Any = BODY, path: str = PATH, **how: Any) -> Call:
    """The call of an exchange with this answer."""
    return dialect.read(exchange(request(path, body), pieces, **how))


@pytest.mark.parametrize(
    ("method", "path", "body", "wanted"),
    [
        ("POST", "/v1/responses", b"{}", True),
        ("POST", "/backend-api/codex//responses", b"", True),
        ("POST", "/v1/responses/compact", b"{}", True),
        ("GET", "/v1/responses", b"", False),
        ("GET", "/v1/responses", b'{"type":"response.create"}', True),
        ("GET", "/v1/responses", b'{"type":"session.update"}', False),
        ("GET", "/v1/responses", b'{"type":"response.create"}\n{"type":"response.create"}', False),
        ("GET", "/v1/responses", b'{"type": "response.create","input":[{"ro', True),
        ("GET", "/v1/responses", b'{"type":"session.update","x', False),
        ("GET", "/v1/responses/resp_1", b"", False),
        ("POST", "/v1/chat/completions", b"{}", False),
    ],
)
def test_matches_by_path(method: str, path: str, body: bytes, wanted: bool) -> None:
    """The upgrade to a WebSocket is no call, a message on it is."""
    asked = request(path, body)
    assert dialect.matches(type(asked)(method=method, url=asked.url, headers=(), body=body)) is wanted


def test_the_request_is_read() -> None:
    """One message an item; tools wherever they stand."""
    call = hear()
    assert (call.model, call.previous_response_id, call.streamed) == ("gpt-5.4", "resp_0", True)
    assert call.settings == {"previous_response_id": "resp_0", "store": False}
    assert call.tools == (Tool("shell", "Runs a command.", '{"type":"object"}'), Tool("exec", "Runs.", '{"type":"text"}'))
    assert call.prompt == (
        Message("system", (Text("You are an agent."),)),
        Message("developer", (Text("Be brief."),)),
        Message("user", (Text("look"),)),
        Message("user", (Media("image", None, "data:x"), Media("document", None, "f"), Opaque("odd", '{"type":"odd"}'))),
        Message("assistant", (Reasoning("Hm.", "ENC"),)),
        Message("assistant", (ToolCall("call_1", "shell", '{"cmd" : "ls"}'),)),
        Message("tool", (ToolResult("call_1", (Text("a b c"),)),)),
        Message("assistant", (ToolCall("call_2", "exec", "ls"),)),
        Message("tool", (ToolResult("call_2", (Text("x"),)),)),
        Message("assistant", (Opaque("compaction", dumps(INPUT[9]).decode()),)),
        Message("user", (Opaque("item_reference", '{"type":"item_reference","id":"msg_9"}'),)),
    )
    assert hear(body={"input": "hi"}).prompt == (Message("user", (Text("hi"),)),)


def test_the_stream_is_read() -> None:
    """Created, added, done and completed are no content; a function's name is."""
    call = hear(*STREAM)
    assert call.reply == REPLY
    assert call.deltas == DELTAS
    assert (call.stop, call.ended, call.response_id, call.error) == ("completed", True, "resp_1", None)
    assert call.usage == Usage(prompt=900, cached=768, cache_written=100, output=20, reasoning=5)
    assert call.usage_raw == dumps(USAGE).decode()


def test_the_stream_may_be_cut_anywhere() -> None:
    """Two reads, cut at every byte: the same reply, every delta at the read that completed its event."""
    whole = b"".join(STREAM)
    ends = [sum(map(len, STREAM[: at + 1])) for at in range(len(STREAM))]
    for cut in range(1, len(whole), 3):
        call = hear(whole[:cut], whole[cut:])
        assert call.reply == REPLY
        assert call.deltas == tuple(Delta(100 if ends[each.at_ns // 100 - 1] <= cut else 200, each.channel, each.text) for each in DELTAS)


def test_web_socket_messages_read_like_events() -> None:
    """One JSON text a line, or one an arrival, or lines cut between arrivals."""
    lines = [dumps(each) + b"\n" for each in objects()]
    bare = [line.rstrip() for line in lines]
    for pieces in (lines, bare):
        call = hear(*pieces, body={"type": "response.create", **BODY}, transport=Transport.WS, status=101)
        assert (call.reply, call.deltas, call.ended) == (REPLY, DELTAS, True)
        assert "type" not in call.settings
    whole = b"".join(lines)
    call = hear(whole[:777], whole[777:], transport=Transport.WS, status=101)
    assert call.reply == REPLY


def test_a_stream_cut_short_keeps_what_came() -> None:
    """From the deltas, as items are not done."""
    assert hear(*STREAM[:8], failure="client_left").reply == (Reasoning("Hmm.", "E"), Text("Grüße "))
    call = hear(*STREAM[:13], failure="client_left")
    assert call.reply[-1] == ToolCall("call_9", "shell", '{"cmd" : ')
    assert not call.ended
    assert hear(*STREAM[:4], failure="client_left").reply == (Reasoning("Hmm."),)
    assert hear(*STREAM[:3], failure="client_left").reply == ()


def test_servers_that_send_no_deltas_bring_content_when_done() -> None:
    """A finished item is generated content when nothing of it came before; its name does not count twice."""
    call = hear(*[event(each) for each in objects() if "delta" not in each])
    assert call.reply == REPLY
    assert [(delta.channel, delta.text) for delta in call.deltas] == [
        ("reasoning", "Hmm."),
        ("text", "Grüße 😀"),
        ("tool", "shell"),
        ("tool", '{"cmd" : "ls"}'),
    ]
    only = hear(event(objects()[-1]))
    assert (only.reply, only.ended) == (REPLY, True)


@pytest.mark.parametrize(
    ("last", "stop", "error"),
    [
        (INCOMPLETE, "max_output_tokens", None),
        (FAILED, "failed", "Sorry"),
        ({"type": "error", "status": 429, "error": {"message": "Rate limit", "type": "r"}}, None, "Rate limit"),
        ({"type": "error", "code": "x", "message": "Broken"}, None, "Broken"),
    ],
    ids=["incomplete", "failed", "error", "flat error"],
)
def test_other_ends(last: dict[str, Any], stop: str | None, error: str | None) -> None:
    """All of them are terminal."""
    call = hear(*STREAM[:8], event(last))
    assert (call.stop, call.error, call.ended) == (stop, error, True)


def test_a_whole_answer_is_read() -> None:
    """All its content came with the last read; a failed one says why."""
    answer = dumps({**SHELL, "status": "completed", "output": [THOUGHT, SAID, ASKED], "usage": USAGE})
    call = hear(answer[:50], answer[50:], kind=JSON, body={"model": "m", "input": "x"})
    assert call.reply == REPLY
    assert {delta.at_ns for delta in call.deltas} == {200}
    assert (call.stop, call.ended, call.streamed, call.usage.prompt) == ("completed", True, False, 900)
    failed = hear(dumps({**SHELL, "status": "failed", "error": {"code": "c", "message": "Sorry"}}), kind=JSON)
    assert (failed.error, failed.stop, failed.ended, failed.response_id) == ("Sorry", "failed", True, "resp_1")
    refused = hear(b'{"error":{"message":"No such model"}}', kind=JSON, status=404)
    assert (refused.error, refused.stop, refused.ended) == ("No such model", None, True)


def test_elements_come_in_prompt_order() -> None:
    """Tools, instructions, input; items that bring tools count as tools where they stand; random ids are cut."""
    split = dialect.split(dumps(BODY))
    assert split is not None
    check_layout(split)
    found = canonical(split)
    assert [group for group, _ in found] == ["tool", "system", "tool", *["item"] * 10]
    assert found[1][1] == b'"You are an agent."'
    for (_, raw), item in zip(found[2:], INPUT, strict=True):
        dropped = {"id", *PASS} if item.get("type") != "item_reference" else set()
        assert raw == dumps({key: value for key, value in item.items() if key not in dropped})


@pytest.mark.parametrize(
    "item",
    [
        '{"id":"x","type":"message","role":"user","content":[{"type":"input_text","text":"a","id":"kept"}]}',
        '{"type":"message","role":"user","id":"x","content":[{"type":"input_text","text":"a","id":"kept"}]}',
        '{"type":"message","id":"x","role":"user","content":[{"type":"input_text","text":"a","id":"kept"}]}',
        '{"type":"message","role":"user","content":[{"type":"input_text","text":"a","id":"kept"}],"id":"x"}',
        '{"type":"message","id":"x","role":"user","content":[{"type":"input_text","text":"a","id":"kept","refusal":null}],@:{"turn_id":"t"}}',
        '{"type":"message","id":"x","role":"user","content":[{"type":"input_text","text":"a","id":"kept"}],@:{"turn_id":"t"}}',
        '{"type":"message","id":"x","role":"user","content":[{"type":"input_text","text":"a","id":"kept"}],@:{"turn_id":"t","deep":[{}]}}',
    ],
)
def test_ids_are_cut_wherever_they_stand(item: str) -> None:
    """At the item's own level only."""
    split = dialect.split(b'{"input":[%b]}' % item.replace("@", f'"{next(iter(PASS))}"').encode())
    assert split is not None
    check_layout(split)
    assert canonical(split) == [("item", b'{"type":"message","role":"user","content":[{"type":"input_text","text":"a","id":"kept"}]}')]


@pytest.mark.parametrize(
    ("body", "groups"),
    [
        (b'{"input":"hi"}', ["item"]),
        (b'{"type":"response.create","input":[],"instructions":null}', []),
        (b'{"input":["a","b"]}', ["item", "item"]),
        (b'{"input":{}}', None),
        (b'{"messages":[]}', None),
        (b"x", None),
    ],
)
def test_odd_inputs(body: bytes, groups: list[str] | None) -> None:
    """A string is one item; what is no input is kept whole."""
    split = dialect.split(body)
    assert (split and [element.group for element in split.elements]) == groups


def test_rendered_text() -> None:
    """Items as messages, namespaces opened."""
    assert dialect.render("tool", dumps(TOOL)) == 'shell\nRuns a command.\n{"type":"object"}\n'
    assert dialect.render("tool", dumps(MORE_TOOLS)) == 'exec\nRuns.\n{"type":"text"}\n'
    assert dialect.render("system", b'"S"') == "S\n"
    assert dialect.render("item", b'"hi"') == dialect.render("item", b'{"role":"user","content":"hi"}') == "user\nhi\n"
    assert dialect.render("item", dumps(INPUT[5])) == 'assistant\nshell({"cmd" : "ls"})\n'
    assert dialect.render("item", dumps(INPUT[9])) == "assistant\n" + dumps(INPUT[9]).decode() + "\n"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            {"instructions": "I", "tools": [TOOL], "input": []},
            {"instructions": "N\nI", "tools": [{**TOOL, "description": "N\nRuns a command."}], "input": []},
        ),
        ({"input": "hi"}, {"input": "N\nhi"}),
        (
            {"input": [{"type": "reasoning"}, {"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
            {"input": [{"type": "reasoning"}, {"role": "user", "content": [{"type": "input_text", "text": "N\nhi"}]}]},
        ),
        ({"input": [{"role": "user", "content": []}]}, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "N\n"}]}]}),
    ],
)
def test_the_nonce_comes_first(body: Any, wanted: Any) -> None:
    """At the head of the first tool and of the first text."""
    assert dialect.change(request(PATH, body), Changes(prefix_nonce="N")).body == dumps(wanted)


def test_changes_touch_nothing_else() -> None:
    """Model, limit and settings; a nonce without a place is refused."""
    asked = request(PATH, {"model": "a", "input": "x", "reasoning": {"effort": "low"}})
    changed = dialect.change(asked, Changes(model="b", max_output_tokens=3, settings=(("reasoning.effort", '"high"'), ("a.b", "[1]"))))
    assert changed.body == dumps({"model": "b", "input": "x", "reasoning": {"effort": "high"}, "max_output_tokens": 3, "a": {"b": [1]}})
    assert dialect.change(asked, Changes()) is asked
    with pytest.raises(ValueError, match="nonce"):
        dialect.change(request(PATH, {"input": []}), Changes(prefix_nonce="N"))


@pytest.mark.parametrize(
    ("text", "called"),
    [
        (b' {"a":1, "type" : "error"} ', "error"),
        (b'{"type":1}', ""),
        (b"{}", ""),
        (b"[1]", ""),
        (b"\xff\x00", ""),
        (b'{"type":"\xff"}', ""),
    ],
)
def test_a_message_says_what_it_is(text: bytes, called: str) -> None:
    """Only a whole JSON object with a type says anything."""
    assert socket.message_type(text) == called


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b'{"status":429}', 429),
        (b'{"status_code":503,"status":null}', 503),
        (b'{"status":200}', None),
        (b'{"status":"x"}', None),
        (b"{}", None),
        (b"no", None),
    ],
)
def test_an_error_may_name_a_status(text: bytes, status: int | None) -> None:
    """What HTTP would have answered; anything else is no refusal."""
    assert socket.refusal_status(text) == status


@pytest.mark.parametrize("layout", [{}, {"indent": 2}])
def test_messages_of_a_socket_however_laid_out(layout: dict[str, int]) -> None:
    """One an arrival, over several lines too."""
    said = [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"},
        {"type": "response.completed", "response": {"id": "r"}},
    ]
    texts = [json.dumps(each, **layout).encode() for each in said]
    arrivals = tuple(Arrival(at, (b"\n" if at else b"") + text) for at, text in enumerate(texts))
    response = Response(status=200, headers=(), headers_at_ns=0, arrivals=arrivals)
    call = dialect.read(
        Exchange(started_ns=0, request=request("/v1/responses", b"{}"), response=response, ended_ns=2, transport=Transport.WS)
    )
    assert (call.response_id, call.ended, [(delta.at_ns, delta.text) for delta in call.deltas]) == ("r", True, [(0, "Hi")])
