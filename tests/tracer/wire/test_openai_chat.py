"""Chat Completions: read, split, rendered, changed."""

from typing import Any

import pytest
from wire_answers import JSON, canonical, check_layout, dumps, event, exchange, request

from storage.records import Usage
from tracer.wire import openai_chat as dialect
from tracer.wire.contract import Call, Changes, Delta, Media, Message, Opaque, Reasoning, Text, Tool, ToolCall, ToolResult

PATH = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "bash", "description": "Runs a command.", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd" : "ls"}'}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
BODY = {
    "model": "gpt-5",
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": "look"}, PICTURE]},
        {"role": "assistant", "content": None, "reasoning_content": "Hmm.", "refusal": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a b c"},
        {"role": "system", "content": "A reminder."},
    ],
    "tools": [TOOL, {"type": "custom", "custom": {"name": "patch", "format": {"type": "text"}}}],
    "temperature": 0,
    "stream": True,
}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-5-2025", "service_tier": None}
USAGE = {
    "prompt_tokens": 1200,
    "completion_tokens": 30,
    "total_tokens": 1230,
    "prompt_tokens_details": {"cached_tokens": 1024},
    "completion_tokens_details": {"reasoning_tokens": 12},
}


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    """One chunk with one choice."""
    return event({**HEAD, "choices": [{"index": index, "delta": delta, "finish_reason": finish}], **more})


def call_piece(index: int | None, arguments: str, **opening: Any) -> dict[str, Any]:
    """A fragment of a tool call."""
    name = {"name": opening.pop("name")} if "name" in opening else {}
    place = {} if index is None else {"index": index}
    return {"tool_calls": [{**place, **opening, "function": {**name, "arguments": arguments}}]}


STREAM = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "Hm"}),
    chunk({"reasoning_content": "m."}),
    chunk({"content": "Grüße "}),
    chunk({"content": "😀"}),
    chunk(call_piece(0, "", id="call_1", type="function", name="bash")),
    chunk(call_piece(0, '{"cmd" :')),
    chunk(call_piece(0, ' "ls"}')),
    chunk(call_piece(1, "{}", id="call_2", name="pwd")),
    chunk({}, "tool_calls"),
    event({**HEAD, "choices": [], "usage": USAGE}),
    b"data: [DONE]\n\n",
]
REPLY = (Reasoning("Hmm."), Text("Grüße 😀"), ToolCall("call_1", "bash", '{"cmd" : "ls"}'), ToolCall("call_2", "pwd", "{}"))


def hear(*pieces: bytes, body: Any = BODY, path: str = PATH, **how: Any) -> Call:
    """The call of an exchange with this answer."""
    return dialect.read(exchange(request(path, body), pieces, **how))


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/v1/chat/completions", True),
        ("/proxy/api/v1//chat/completions?x=1", True),
        ("/openai/deployments/d/chat/completions?api-version=1", True),
        ("/v1/completions", False),
        ("/v1/chat/completions/chatcmpl-1", False),
    ],
)
def test_matches_by_path(path: str, wanted: bool) -> None:
    """Behind any prefix."""
    assert dialect.matches(request(path)) is wanted


def test_the_request_is_read() -> None:
    """Messages as parts, arguments as they stood."""
    call = hear()
    assert call.model == "gpt-5"
    assert call.streamed
    assert call.settings == {"temperature": 0}
    assert call.tools == (Tool("bash", "Runs a command.", '{"type":"object"}'), Tool("patch", None, '{"type":"text"}'))
    assert call.prompt == (
        Message("system", (Text("You are an agent."),)),
        Message("developer", (Text("Be brief."),)),
        Message("user", (Text("look"), Media("image", None, "data:image/png;base64,aGk="))),
        Message("assistant", (Reasoning("Hmm."), ToolCall("call_1", "bash", '{"cmd" : "ls"}'))),
        Message("tool", (ToolResult("call_1", (Text("a b c"),)),)),
        Message("system", (Text("A reminder."),)),
    )


def test_older_and_rarer_forms_are_read() -> None:
    """Function calls of the first generation, audio, files, custom tools, refusals, and what is not known."""
    body = {
        "messages": [
            {"role": "function", "name": "f", "content": "r"},
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}, "refusal": "No."},
            {
                "role": "user",
                "content": [
                    {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
                    {"type": "file", "file": {"file_id": "file_1"}},
                    {"type": "refusal", "refusal": "no"},
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "hologram"},
                ],
            },
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** x"}}]},
        ],
        "functions": [{"name": "f", "parameters": {}}],
    }
    call = hear(body=body)
    assert call.tools == (Tool("f", None, "{}"),)
    assert call.prompt == (
        Message("tool", (ToolResult("f", (Text("r"),)),)),
        Message("assistant", (Text("No."), ToolCall(None, "f", "{}"))),
        Message(
            "user",
            (
                Media("audio", "wav", "UklG"),
                Media("document", None, "file_1"),
                Text("no"),
                Reasoning("t", "s"),
                Opaque("hologram", '{"type":"hologram"}'),
            ),
        ),
        Message("assistant", (ToolCall("c", "patch", "*** x"),)),
    )


def test_the_stream_is_read() -> None:
    """Roles, empty deltas and the usage chunk are no content."""
    call = hear(*STREAM)
    assert call.reply == REPLY
    assert call.deltas == (
        Delta(200, "reasoning", "Hm"),
        Delta(300, "reasoning", "m."),
        Delta(400, "text", "Grüße "),
        Delta(500, "text", "😀"),
        Delta(600, "tool", "bash"),
        Delta(700, "tool", '{"cmd" :'),
        Delta(800, "tool", ' "ls"}'),
        Delta(900, "tool", "pwd{}"),
    )
    assert (call.stop, call.ended, call.response_id) == ("tool_calls", True, "chatcmpl-1")
    assert call.usage == Usage(prompt=1200, cached=1024, output=30, reasoning=12)
    assert call.usage_raw == dumps(USAGE).decode()


def test_the_stream_may_be_cut_anywhere() -> None:
    """Two reads, cut at every byte: the same reply, every delta at the read that completed its event."""
    whole = b"".join(STREAM)
    ends = [sum(map(len, STREAM[: at + 1])) for at in range(len(STREAM))]
    base = hear(*STREAM)
    for cut in range(1, len(whole)):
        call = hear(whole[:cut], whole[cut:])
        assert call.reply == REPLY
        assert call.ended
        assert call.deltas == tuple(
            Delta(100 if ends[each.at_ns // 100 - 1] <= cut else 200, each.channel, each.text) for each in base.deltas
        )


def test_the_end_is_done_or_a_finish_reason_and_a_clean_close() -> None:
    """Some servers leave [DONE] out."""
    assert hear(*STREAM[:-1]).ended
    assert not hear(*STREAM[:-1], failure="client_left").ended
    assert hear(*STREAM, failure="client_left").ended
    assert not hear(*STREAM[:8]).ended


def test_refusals_are_a_channel_of_their_own() -> None:
    """And text of the reply."""
    call = hear(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk({}, "stop"))
    assert call.reply == (Text("I cannot."),)
    assert [delta.channel for delta in call.deltas] == ["refusal", "refusal"]


def test_calls_without_an_index_are_told_apart_by_id() -> None:
    """As compatible servers of other providers send them; the old single function call too."""
    call = hear(
        chunk(call_piece(None, '{"a":1}', id="a", name="f")),
        chunk(call_piece(None, '{"b":', id="b", name="g")),
        chunk(call_piece(None, "2}")),
        chunk({}, "tool_calls"),
    )
    assert call.reply == (ToolCall("a", "f", '{"a":1}'), ToolCall("b", "g", '{"b":2}'))
    old = hear(chunk({"function_call": {"name": "f", "arguments": ""}}), chunk({"function_call": {"arguments": "{}"}}))
    assert old.reply == (ToolCall(None, "f", "{}"),)


def test_of_several_choices_the_first_is_the_reply() -> None:
    """Content of all of them counts as generated."""
    call = hear(chunk({"content": "b"}, index=1), chunk({"content": "a"}), chunk(call_piece(0, "{}", name="f"), "stop", index=1))
    assert call.reply == (Text("a"),)
    assert [delta.text for delta in call.deltas] == ["b", "a", "f{}"]
    assert call.stop is None


def test_a_whole_answer_is_read() -> None:
    """All its content came with the last read."""
    message = {"role": "assistant", "content": "fine", "reasoning": "Hm.", "tool_calls": [CALL]}
    answer = dumps({"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": USAGE})
    call = hear(answer[:30], answer[30:], kind=JSON, body={"model": "m", "messages": []})
    assert call.reply == (Reasoning("Hm."), Text("fine"), ToolCall("call_1", "bash", '{"cmd" : "ls"}'))
    assert {delta.at_ns for delta in call.deltas} == {200}
    assert (call.stop, call.ended, call.streamed, call.response_id) == ("stop", True, False, "c")
    assert call.usage.prompt == 1200


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 2}}, Usage(prompt=9, output=2)),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": None, "completion_tokens": 2}}, Usage(prompt=9, output=2)),
        ({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 1}}, Usage(prompt=9, cached=8)),
        ({"usage": {"prompt_tokens": 9, "cached_tokens": 0}}, Usage(prompt=9, cached=0)),
        ({"choices": [{"usage": {"prompt_tokens": 9, "cached_tokens": 4}}]}, Usage(prompt=9, cached=4)),
        ({"timings": {"cache_n": 586, "prompt_n": 22, "predicted_n": 8}}, Usage(prompt=608, cached=586, output=8)),
        (
            {"timings": {"cache_n": 586, "prompt_n": 22}, "usage": {"prompt_tokens": 608, "completion_tokens": 8}},
            Usage(prompt=608, cached=586, output=8),
        ),
        ({"timings": {"prompt_n": 22}}, Usage()),
        (
            {"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 7}}},
            Usage(prompt=9, cached=2, cache_written=7),
        ),
        (
            {
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 5,
                    "total_tokens": 35,
                    "completion_tokens_details": {"reasoning_tokens": 20},
                }
            },
            Usage(prompt=10, output=25, reasoning=20),
        ),
        ({"usage": None}, Usage()),
        ({"usage": {"prompt_tokens": -1, "completion_tokens": "2", "total_tokens": 1e400}}, Usage()),
    ],
    ids=["plain", "null", "deepseek", "moonshot", "in choice", "timings", "both", "no cache_n", "written", "xai", "none", "nonsense"],
)
def test_usage_of_many_servers(answer: dict[str, Any], usage: Usage) -> None:
    """Absent stays unknown; output includes reasoning."""
    raw = dumps({"choices": [], **answer}).replace(b"Infinity", b"1e400")
    assert hear(raw, kind=JSON).usage == usage
    assert hear(b"data: " + raw + b"\n\n", b"data: [DONE]\n\n").usage == usage


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b'{"error":{"message":"Rate limit","type":"rate_limit_error"}}', "Rate limit"),
        (b'{"error":"model not found"}', "model not found"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"loc":["body"]}]}', '[{"loc":["body"]}]'),
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"error":{"code":1}}', '{"code":1}'),
        (b'[{"error":{"message":"in a list"}}]', "in a list"),
    ],
)
def test_errors_in_their_usual_shapes(said: bytes, error: str) -> None:
    """By status; the object inside a stream ends it."""
    call = hear(said, kind=JSON, status=400)
    assert (call.error, call.ended, call.reply) == (error, True, ())
    in_stream = hear(STREAM[0], event({"error": {"message": "engine died"}}))
    assert (in_stream.error, in_stream.ended) == ("engine died", True)


def test_elements_come_in_prompt_order() -> None:
    """Tools, the head's system messages, messages; markers and a null refusal cut."""
    split = dialect.split(dumps(BODY))
    assert split is not None
    check_layout(split)
    found = canonical(split)
    assert [group for group, _ in found] == ["tool", "tool", "system", "system", "message", "message", "message", "message"]
    assert found[3][1] == b'{"role":"developer","content":[{"type":"text","text":"Be brief."}]}'
    assert b"refusal" not in found[5][1]
    said = dialect.split(b'{"messages":[{"role":"assistant","content":"x","refusal":"No."}]}')
    assert said is not None
    assert said.elements[0].cuts == ()
    only = dialect.split(b'{"messages":[{"role":"system","content":"x"}],"functions":[{"name":"f"}]}')
    assert only is not None
    assert [element.group for element in only.elements] == ["tool", "system"]
    assert dialect.split(b'{"input":[]}') is None
    assert dialect.split(b'{"messages":1}') is None


def test_rendered_text() -> None:
    """The same for string content and for one text block."""
    assert dialect.render("message", b'{"role":"user","content":"x"}') == "user\nx\n"
    assert dialect.render("message", b'{"role":"user","content":[{"type":"text","text":"x"}]}') == "user\nx\n"
    assert dialect.render("tool", dumps(TOOL)) == 'bash\nRuns a command.\n{"type":"object"}\n'
    assert dialect.render("message", dumps(BODY["messages"][3])) == 'assistant\nHmm.\nbash({"cmd" : "ls"})\n'  # type: ignore[index]


def test_usage_is_asked_for_where_a_stream_needs_asking() -> None:
    """Put in, replaced, or left alone."""
    ask = Changes(report_usage=True)

    def changed(body: dict[str, Any]) -> bytes:
        return dialect.change(request(PATH, body), ask).body

    wanted = dumps({"stream": True, "stream_options": {"include_usage": True}})
    assert changed({"stream": True}) == wanted
    assert changed({"stream": True, "stream_options": None}) == wanted
    assert changed({"stream": True, "stream_options": {}}) == wanted
    assert changed({"stream": True, "stream_options": {"include_usage": False}}) == wanted
    assert changed({"stream": True, "stream_options": {"x": 1}}) == dumps(
        {"stream": True, "stream_options": {"x": 1, "include_usage": True}}
    )
    assert changed({"stream": False}) == dumps({"stream": False})


def test_the_limit_goes_under_the_name_in_use() -> None:
    """Else under the one that the server takes."""
    limit = Changes(max_output_tokens=9)
    for body, wanted in (
        ({"max_tokens": 1}, {"max_tokens": 9}),
        ({"max_completion_tokens": 1}, {"max_completion_tokens": 9}),
        ({"n": 1}, {"n": 1, "max_tokens": 9}),
    ):
        assert dialect.change(request(PATH, body), limit).body == dumps(wanted)
    asked = request(PATH, {"n": 1})
    asked = type(asked)(method="POST", url="https://api.openai.com/v1/chat/completions", headers=(), body=asked.body)
    assert dialect.change(asked, limit).body == dumps({"n": 1, "max_completion_tokens": 9})


def test_model_settings_and_nonce() -> None:
    """Each where it belongs."""
    body = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
    changed = dialect.change(request(PATH, body), Changes(model="b", settings=(("messages.0.name", '"x"'),), prefix_nonce="N"))
    tool = {"type": "function", "function": {**TOOL["function"], "description": "N\nRuns a command."}}  # type: ignore[dict-item]
    assert changed.body == dumps({"model": "b", "messages": [{"role": "user", "content": "N\nhi", "name": "x"}], "tools": [tool]})
    assert dialect.change(request(PATH, body), Changes()).body == dumps(body)
    with pytest.raises(ValueError, match="not a JSON value"):
        dialect.change(request(PATH, body), Changes(settings=(("a", "nope"),)))
    with pytest.raises(ValueError, match="nonce"):
        dialect.change(request(PATH, {"messages": []}), Changes(prefix_nonce="N"))
