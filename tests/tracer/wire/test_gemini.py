"""Gemini: read, split, rendered, changed."""

from typing import Any

import pytest
from wire_answers import JSON, canonical, check_layout, dumps, event, exchange, request

from storage.records import Usage
from tracer.wire import gemini as dialect
from tracer.wire.contract import Call, Changes, Delta, Media, Message, Opaque, Reasoning, Text, Tool, ToolCall, ToolResult

PATH = "/v1beta/models/gemini-3-flash:streamGenerateContent?alt=sse"
WHOLE = "/v1beta/models/gemini-3-flash:generateContent"
RUN = {"name": "run", "description": "Runs.", "parametersJsonSchema": {"type": "object"}}
BODY = {
    "contents": [
        {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
        {
            "role": "model",
            "parts": [
                {"text": "Hm.", "thought": True},
                {"functionCall": {"name": "run", "args": {"cmd": "ls"}}, "thoughtSignature": "sig"},
                {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://x"}},
                {"executableCode": {"code": "1"}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "run_1", "name": "run", "response": {"output": "a b"}}},
                {"functionResponse": {"name": "run", "response": {"error": "x"}}},
            ],
        },
    ],
    "systemInstruction": {"role": "user", "parts": [{"text": "You are an agent."}]},
    "tools": [{"functionDeclarations": [RUN, {"name": "stop"}]}, {"googleSearch": {}}],
    "generationConfig": {"temperature": 1},
}
USAGE = {
    "promptTokenCount": 900,
    "cachedContentTokenCount": 700,
    "candidatesTokenCount": 11,
    "thoughtsTokenCount": 20,
    "totalTokenCount": 931,
}


def chunk(*parts: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk with one candidate."""
    stopped = {"finishReason": finish} if finish else {}
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **stopped}
    return {"candidates": [candidate], "modelVersion": "gemini-3-flash-001", "responseId": "r1", **more}


CHUNKS = [
    chunk({"text": "Hm", "thought": True}),
    chunk({"text": "m.", "thought": True}, usageMetadata={"promptTokenCount": 900}),
    chunk({"text": "Grüße "}),
    chunk({"text": "😀"}),
    chunk({"functionCall": {"id": "f1", "name": "run", "args": {"cmd": "l s"}}}),
    chunk({"text": ""}, finish="STOP", usageMetadata=USAGE),
]
STREAM = [event(each) for each in CHUNKS]
ARRAY = [(b"[" if not at else b",\r\n") + dumps(each) for at, each in enumerate(CHUNKS)] + [b"]"]
REPLY = (Reasoning("Hmm."), Text("Grüße 😀"), ToolCall("f1", "run", '{"cmd":"l s"}'))
DELTAS = (
    Delta(100, "reasoning", "Hm"),
    Delta(200, "reasoning", "m."),
    Delta(300, "text", "Grüße "),
    Delta(400, "text", "😀"),
    Delta(500, "tool", 'run{"cmd":"l s"}'),
)


def hear(*pieces: bytes, body: Any = BODY, path: str = PATH, **how: Any) -> Call:
    """The call of an exchange with this answer."""
    return dialect.read(exchange(request(path, body), pieces, **how))


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/v1beta/models/m:streamGenerateContent?alt=sse", True),
        ("/proxy/v1//models/m:generateContent", True),
        ("/v1/projects/p/locations/l/publishers/google/models/m:countTokens", True),
        ("/v1beta/tunedModels/m:generateContent", True),
        ("/v1beta/models/m:embedContent", False),
        ("/v1beta/models", False),
    ],
)
def test_matches_by_path(path: str, wanted: bool) -> None:
    """Behind any prefix."""
    assert dialect.matches(request(path)) is wanted


def test_the_request_is_read() -> None:
    """The model from the URL; a signature is a part of its own; the text of a result as agents send it."""
    call = hear()
    assert (call.model, call.streamed) == ("gemini-3-flash", True)
    assert call.settings == {"generationConfig": {"temperature": 1}}
    assert call.tools == (Tool("run", "Runs.", '{"type":"object"}'), Tool("stop", None, None), Tool("googleSearch", None, "{}"))
    assert call.prompt == (
        Message("system", (Text("You are an agent."),)),
        Message("user", (Text("look"), Media("image", "image/png", "aGk="))),
        Message(
            "assistant",
            (
                Reasoning("Hm."),
                Reasoning("", "sig"),
                ToolCall(None, "run", '{"cmd":"ls"}'),
                Media("video", "video/mp4", "gs://x"),
                Opaque("executableCode", '{"executableCode":{"code":"1"}}'),
            ),
        ),
        Message("tool", (ToolResult("run_1", (Text("a b"),)), ToolResult("run", (Text('{"error":"x"}'),)))),
    )


def test_snake_case_reads_the_same() -> None:
    """Google takes both."""
    body = {
        "contents": [{"role": "function", "parts": [{"function_response": {"name": "f", "response": {}}}]}, {"parts": {"text": "x"}}],
        "system_instruction": {"parts": [{"text": "S"}]},
        "tools": [{"function_declarations": [{"name": "f", "parameters": {}}]}],
    }
    call = hear(body=body)
    assert call.tools == (Tool("f", None, "{}"),)
    assert call.prompt == (
        Message("system", (Text("S"),)),
        Message("tool", (ToolResult("f", (Text("{}"),)),)),
        Message("user", (Text("x"),)),
    )
    split = dialect.split(dumps(body))
    assert split is not None
    assert [element.group for element in split.elements] == ["tool", "system", "message", "message"]


def test_the_stream_is_read() -> None:
    """Usage and an empty last text are no content."""
    call = hear(*STREAM)
    assert (call.reply, call.deltas) == (REPLY, DELTAS)
    assert (call.stop, call.ended, call.response_id) == ("STOP", True, "r1")
    assert call.usage == Usage(prompt=900, cached=700, output=31, reasoning=20)
    assert call.usage_raw == dumps(USAGE).decode()
    assert not hear(*STREAM[:5]).ended
    assert not hear(*STREAM, failure="server_cut").ended


def test_a_json_array_grows_like_a_stream() -> None:
    """Without `alt=sse`; each item at the read that completed it, one cut short left out."""
    call = hear(*ARRAY, path=WHOLE.replace("generate", "streamGenerate"), kind=JSON)
    assert (call.reply, call.deltas, call.ended, call.streamed) == (REPLY, DELTAS, True, True)
    cut = hear(*ARRAY[:4], ARRAY[4][:40], kind=JSON, failure="server_cut")
    assert (cut.reply, cut.ended) == (REPLY[:2], False)


@pytest.mark.parametrize("pieces", [STREAM, ARRAY], ids=["events", "array"])
def test_the_stream_may_be_cut_anywhere(pieces: list[bytes]) -> None:
    """Two reads, cut at every byte: the same reply, every delta at the read that completed its event."""
    whole = b"".join(pieces)
    ends = [sum(map(len, pieces[: at + 1])) for at in range(len(pieces))]
    for cut in range(1, len(whole)):
        call = hear(whole[:cut], whole[cut:])
        assert call.reply == REPLY
        assert call.deltas == tuple(Delta(100 if ends[each.at_ns // 100 - 1] <= cut else 200, each.channel, each.text) for each in DELTAS)


def test_a_whole_answer_is_read() -> None:
    """All its content came with the last read."""
    answer = dumps(chunk({"text": "fine"}, {"functionCall": {"name": "stop"}}, finish="STOP", usageMetadata=USAGE))
    call = hear(answer[:20], answer[20:], kind=JSON, path=WHOLE)
    assert call.reply == (Text("fine"), ToolCall(None, "stop", "{}"))
    assert call.deltas == (Delta(200, "text", "fine"), Delta(200, "tool", "stop{}"))
    assert (call.stop, call.ended, call.streamed) == ("STOP", True, False)


def test_refused_prompts_errors_and_counts() -> None:
    """A blocked prompt has no candidate; errors come as an object or in a list; a count is no account."""
    blocked = hear(dumps({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}), kind=JSON, path=WHOLE)
    assert (blocked.stop, blocked.ended, blocked.usage.prompt, blocked.usage.output) == ("SAFETY", True, 3, None)
    said = dumps({"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}})
    for answer in (said, b"[" + said + b"]"):
        call = hear(answer, kind=JSON, status=429)
        assert (call.error, call.ended, call.reply) == ("Quota", True, ())
    in_stream = hear(STREAM[2], b"data: " + said + b"\n\n")
    assert (in_stream.error, in_stream.ended) == ("Quota", True)
    count = hear(b'{"totalTokens":9}', kind=JSON, path=WHOLE.replace("generateContent", "countTokens"))
    assert (count.ended, count.usage, count.deltas) == (True, Usage(), ())
    tools = hear(dumps({"usageMetadata": {"promptTokenCount": 10, "toolUsePromptTokenCount": 5}}), kind=JSON, path=WHOLE)
    assert tools.usage == Usage(prompt=15)


def test_of_several_candidates_the_first_is_the_reply() -> None:
    """Content of all of them counts as generated."""
    second = {"index": 1, "content": {"parts": [{"text": "b"}]}, "finishReason": "OTHER"}
    call = hear(event({"candidates": [second]}), event(chunk({"text": "a"})))
    assert (call.reply, [delta.text for delta in call.deltas], call.stop) == ((Text("a"),), ["b", "a"], None)


def test_elements_come_in_prompt_order() -> None:
    """Each function declared is one; an entry of `tools` that holds something else is kept whole."""
    split = dialect.split(dumps(BODY))
    assert split is not None
    check_layout(split)
    found = canonical(split)
    assert [group for group, _ in found] == ["tool", "tool", "tool", "system", "message", "message", "message"]
    assert [raw for group, raw in found if group == "tool"] == [dumps(RUN), b'{"name":"stop"}', b'{"googleSearch":{}}']
    for body in (b"", b"{}", b'{"contents":1}', b'{"messages":[]}'):
        assert dialect.split(body) is None
    bare = dialect.split(b'{"contents":[],"systemInstruction":null}')
    assert bare is not None
    assert bare.elements == ()


def test_rendered_text() -> None:
    """Declarations alone or together, instructions, contents."""
    assert dialect.render("tool", dumps(RUN)) == 'run\nRuns.\n{"type":"object"}\n'
    assert dialect.render("tool", dumps(BODY["tools"][0])) == 'run\nRuns.\n{"type":"object"}\nstop\n'  # type: ignore[index]
    assert dialect.render("system", dumps(BODY["systemInstruction"])) == "You are an agent.\n"
    assert dialect.render("message", dumps(CHUNKS[2]["candidates"][0]["content"])) == "assistant\nGrüße \n"


def test_the_model_is_changed_in_the_url() -> None:
    """The body stays, packed or not."""
    asked = request(PATH, b"not even json")
    changed = dialect.change(asked, Changes(model="models/gemini-4/x"))
    assert changed.url == "http://127.0.0.1:8000/v1beta/models/gemini-4%2Fx:streamGenerateContent?alt=sse"
    assert changed.body == b"not even json"
    assert dialect.change(asked, Changes()) is asked
    with pytest.raises(ValueError, match="no model"):
        dialect.change(request("/v1beta/models", {}), Changes(model="m"))
    with pytest.raises(ValueError, match="object"):
        dialect.change(asked, Changes(model="m", max_output_tokens=3))


@pytest.mark.parametrize(
    ("body", "changes", "wanted"),
    [
        ({"contents": []}, Changes(max_output_tokens=3), {"contents": [], "generationConfig": {"maxOutputTokens": 3}}),
        ({"generationConfig": {"topK": 1}}, Changes(max_output_tokens=3), {"generationConfig": {"topK": 1, "maxOutputTokens": 3}}),
        ({"generation_config": {"max_output_tokens": 1}}, Changes(max_output_tokens=3), {"generation_config": {"max_output_tokens": 3}}),
        ({}, Changes(settings=(("generationConfig.topK", "4"),)), {"generationConfig": {"topK": 4}}),
        (
            {"tools": [{"functionDeclarations": [RUN]}], "systemInstruction": {"parts": [{"text": "S"}]}},
            Changes(prefix_nonce="N"),
            {
                "tools": [{"functionDeclarations": [{**RUN, "description": "N\nRuns."}]}],
                "systemInstruction": {"parts": [{"text": "N\nS"}]},
            },
        ),
        ({"contents": [{"parts": [{"text": "x"}]}]}, Changes(prefix_nonce="N"), {"contents": [{"parts": [{"text": "N\nx"}]}]}),
        (
            {"contents": [{"parts": [{"inlineData": {}}]}]},
            Changes(prefix_nonce="N"),
            {"contents": [{"parts": [{"text": "N\n"}, {"inlineData": {}}]}]},
        ),
    ],
)
def test_changes_touch_nothing_else(body: Any, changes: Changes, wanted: Any) -> None:
    """Each where it belongs."""
    assert dialect.change(request(PATH, body), changes).body == dumps(wanted)


def test_a_nonce_without_a_place_is_refused() -> None:
    """Nothing to put it in front of."""
    with pytest.raises(ValueError, match="nonce"):
        dialect.change(request(PATH, {"contents": []}), Changes(prefix_nonce="N"))
