"""Anthropic Messages: read, split, rendered, changed."""

import gzip
import hashlib
import json
from typing import Any

import pytest
from wire_answers import JSON, canonical, check_layout, dumps, event, exchange, request

from storage.records import Exchange, Usage
from tracer.wire import anthropic_messages as dialect
from tracer.wire.contract import Call, Changes, Delta, Media, Message, Opaque, Reasoning, Text, Tool, ToolCall, ToolResult

PATH = "/v1/messages?beta=true"
SCHEMA = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
TOOL = {"name": "Read", "description": "Reads a file.", "input_schema": SCHEMA}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
MARKER = {"type": "ephemeral"}
BODY = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 4096,
    "messages": [
        {"role": "user", "content": "list the files"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"},
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a", "cache_control": {"type": "ephemeral"}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [
                        {"type": "text", "text": "a b c"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                    ],
                    "is_error": True,
                }
            ],
        },
    ],
    "system": [
        {"type": "text", "text": "You are an agent.", "cache_control": MARKER},
        {"type": "text", "text": "Be brief."},
    ],
    "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}],
    "metadata": {"user_id": '{"session_id":"s"}'},
    "stream": True,
}


def block(index: int, opening: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    """The events of one content block."""
    return [
        event({"type": "content_block_start", "index": index, "content_block": opening}, "content_block_start"),
        *(event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta") for delta in deltas),
        event({"type": "content_block_stop", "index": index}, "content_block_stop"),
    ]


STREAM = [
    event(
        {
            "type": "message_start",
            "message": {
                "id": "msg_01",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5-20250929",
                "content": [],
                "usage": {"input_tokens": 3, "cache_creation_input_tokens": 40, "cache_read_input_tokens": 500, "output_tokens": 1},
            },
        },
        "message_start",
    ),
    event({"type": "ping"}, "ping"),
    *block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see."},
        {"type": "signature_delta", "signature": "c2ln"},
    ),
    *block(
        1,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "Grüße "},
        {"type": "text_delta", "text": ""},
        {"type": "text_delta", "text": "😀"},
    ),
    *block(
        2,
        {"type": "tool_use", "id": "toolu_9", "name": "Bash", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"cmd" : "l'},
        {"type": "input_json_delta", "partial_json": 's"}'},
    ),
    event({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 37}}, "message_delta"),
    event({"type": "message_stop"}, "message_stop"),
]
REPLY = (Reasoning("Let me see.", "c2ln"), Text("Grüße 😀"), ToolCall("toolu_9", "Bash", '{"cmd" : "ls"}'))


def ask(*pieces: bytes, body: Any = BODY, path: str = PATH, **how: Any) -> Exchange:
    """An exchange with this answer."""
    return exchange(request(path, body), pieces, **how)


def hear(*pieces: bytes, **how: Any) -> Call:
    """The call of an exchange with this answer."""
    return dialect.read(ask(*pieces, **how))


@pytest.mark.parametrize(
    ("path", "headers", "wanted"),
    [
        ("/v1/messages", (), True),
        ("/proxy/abc/v1//messages?beta=true", (), True),
        ("/v1/messages/count_tokens", (), True),
        ("/anthropic/messages", (("Anthropic-Version", "2023-06-01"),), True),
        ("/v1/threads/t/messages", (), False),
        ("/v1/messages/batches", (), False),
        ("/v1/chat/completions", (), False),
    ],
)
def test_matches_by_path(path: str, headers: tuple[tuple[str, str], ...], wanted: bool) -> None:
    """Behind any prefix."""
    assert dialect.matches(request(path, None, *headers)) is wanted


def test_the_request_is_read() -> None:
    """Parts in prompt order, arguments as they stood, the rest as settings."""
    call = hear()
    assert call.model == "claude-sonnet-4-5"
    assert call.streamed
    assert call.settings == {"max_tokens": 4096, "metadata": {"user_id": '{"session_id":"s"}'}}
    assert call.tools == (
        Tool("Read", "Reads a file.", '{"type":"object","properties":{"cache_control":{"type":"string"}}}'),
        Tool("web_search", None, None),
    )
    assert call.prompt == (
        Message("system", (Text("You are an agent."), Text("Be brief."))),
        Message("user", (Text("list the files"),)),
        Message("assistant", (Reasoning("Hmm.", "c2ln"), ToolCall("toolu_1", "Read", '{"path":"a","cache_control":{"type":"ephemeral"}}'))),
        Message("user", (ToolResult("toolu_1", (Text("a b c"), Media("image", "image/png", "aGk=")), is_error=True),)),
    )
    assert not call.ended
    assert call.usage == Usage()


def test_the_stream_is_read() -> None:
    """Times are those of the reads; ping, starts, signatures and empty deltas are no content."""
    call = hear(*STREAM)
    assert call.reply == REPLY
    assert call.deltas == (
        Delta(400, "reasoning", "Let me "),
        Delta(500, "reasoning", "see."),
        Delta(900, "text", "Grüße "),
        Delta(1100, "text", "😀"),
        Delta(1300, "tool", "Bash"),
        Delta(1500, "tool", '{"cmd" : "l'),
        Delta(1600, "tool", 's"}'),
    )
    assert (call.stop, call.ended, call.response_id, call.error) == ("tool_use", True, "msg_01", None)
    assert call.usage == Usage(prompt=543, cached=500, cache_written=40, output=37)
    assert json.loads(call.usage_raw or "") == {
        "input_tokens": 3,
        "cache_creation_input_tokens": 40,
        "cache_read_input_tokens": 500,
        "output_tokens": 37,
    }


def test_the_stream_may_be_cut_anywhere() -> None:
    """Two reads, cut at every byte: the same reply, every delta at the read that completed its event."""
    whole = b"".join(STREAM)
    ends = [sum(map(len, STREAM[: at + 1])) for at in range(len(STREAM))]
    base = hear(*STREAM)
    for cut in range(1, len(whole)):
        call = hear(whole[:cut], whole[cut:])
        assert call.reply == REPLY
        assert call.ended
        wanted = tuple(Delta(100 if ends[each.at_ns // 100 - 1] <= cut else 200, each.channel, each.text) for each in base.deltas)
        assert call.deltas == wanted


def test_a_packed_stream_keeps_its_times() -> None:
    """gzip cut at every 97 bytes: text comes out as it comes in."""
    packed = gzip.compress(b"".join(STREAM))
    pieces = [packed[at : at + 97] for at in range(0, len(packed), 97)]
    call = hear(*pieces, headers=(("Content-Encoding", "gzip"),))
    assert call.reply == REPLY
    assert {delta.at_ns for delta in call.deltas} <= {100 * (at + 1) for at in range(len(pieces))}
    assert call.deltas[0].at_ns < 100 * len(pieces)


def test_a_stream_cut_short_keeps_what_came() -> None:
    """Without message_stop it has not ended."""
    call = hear(*STREAM[:9], failure="server_cut")
    assert call.reply == (Reasoning("Let me see.", "c2ln"), Text("Grüße "))
    assert not call.ended
    assert call.usage.output == 1


def test_a_whole_answer_is_read() -> None:
    """All its content came with the last read."""
    answer = dumps(
        {
            "id": "msg_2",
            "type": "message",
            "model": "m",
            "content": [
                {"type": "text", "text": "fine"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
                {"type": "new_kind"},
            ],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 25, "output_tokens": 7},
        }
    )
    call = hear(answer[:40], answer[40:], kind=JSON, body={**BODY, "stream": False})
    assert call.reply == (Text("fine"), ToolCall("t", "f", '{"a":1}'), Opaque("new_kind", '{"type":"new_kind"}'))
    assert call.deltas == (Delta(200, "text", "fine"), Delta(200, "tool", 'f{"a":1}'))
    assert (call.stop, call.ended, call.streamed) == ("end_turn", True, False)
    assert call.usage == Usage(prompt=25, output=7)
    assert call.usage_raw == '{"input_tokens":25,"output_tokens":7}'
    assert not hear(answer[:40], kind=JSON).ended


def test_vllm_tells_the_true_split_at_the_end() -> None:
    """Its message_start carries the whole input; message_delta's fields replace it."""
    start = event({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 600, "output_tokens": 0}}})
    end = event({"type": "message_delta", "delta": {}, "usage": {"input_tokens": 24, "cache_read_input_tokens": 576, "output_tokens": 8}})
    assert hear(start, end).usage == Usage(prompt=600, cached=576, output=8)


def test_errors_are_in_the_providers_words() -> None:
    """As a status, inside a 200 stream (its last word), and as a page."""
    told = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    in_stream = hear(*STREAM[:9], event(told, "error"))
    assert (in_stream.error, in_stream.ended) == ("Overloaded", True)
    refused = hear(dumps(told), kind=JSON, status=529)
    assert (refused.error, refused.ended, refused.reply) == ("Overloaded", True, ())
    page = hear(b"<html><head><title>502 Bad Gateway</title></head><body>x</body></html>", kind="text/html", status=502)
    assert (page.error, page.ended) == ("502 Bad Gateway", True)
    assert hear(b"<html><script>x()</script><h1>No\n such  host</h1>" + b"x" * 900, status=404).error == "No such host " + "x" * 286 + "…"
    assert hear(b"", status=503).error is None


def test_a_token_count_has_neither_content_nor_usage() -> None:
    """Its number is an answer, not an account."""
    call = hear(b'{"input_tokens":14}', kind=JSON, path="/v1/messages/count_tokens")
    assert (call.ended, call.usage, call.deltas, call.error) == (True, Usage(), (), None)


def test_message_threads_name_what_they_go_on_from() -> None:
    """pi sends only the new messages."""
    body = {"model": "m", "messages": [], "thread": {"type": "continue", "previous_message_id": "msg_e1"}}
    assert hear(body=body).previous_response_id == "msg_e1"


def test_elements_come_in_prompt_order() -> None:
    """Tools, system, messages, though messages come first; markers are cut, but not where they are the user's own words."""
    split = dialect.split(dumps(BODY))
    assert split is not None
    check_layout(split)
    assert [group for group, _ in canonical(split)] == ["tool", "tool", "system", "system", "message", "message", "message"]
    assert canonical(split)[0][1] == dumps(TOOL)
    assert canonical(split)[2][1] == b'{"type":"text","text":"You are an agent."}'
    assert [len(element.cuts) for element in split.elements] == [0, 0, 1, 0, 0, 0, 0]
    assert canonical(dialect.split(b'{"messages":[],"system":"S"}'))[0] == ("system", b'"S"')  # type: ignore[arg-type]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"messages":{}}', b'{"messages":"x"}', b'{"messages":[1}', b"\xff"])
def test_what_has_no_messages_is_kept_whole(body: bytes) -> None:
    """None, not an error."""
    assert dialect.split(body) is None


MARK = '"cache_control":{"type":"ephemeral","ttl":"1h"}'


@pytest.mark.parametrize("space", ["", " ", "\n  "])
@pytest.mark.parametrize(
    ("bare", "marked"),
    [
        ('{"type":"image","id":1}', '{@,"type":"image","id":1}'),
        ('{"type":"image","id":1}', '{"type":"image",@,"id":1}'),
        ('{"type":"image","id":1}', '{"type":"image","id":1,@}'),
        ('{"type":"image","id":1}', '{@,"type":"image",@,"id":1,@}'),
        ('{"type":"image","id":1}', '{@,@,"type":"image","id":1}'),
        ("{}", "{@}"),
        (
            '{"type":"tool_result","content":[{"type":"text","text":"x"}]}',
            '{"type":"tool_result","content":[{"type":"text","text":"x",@}],@}',
        ),
        ('{"type":"text","text":"a \\" b"}', '{"type":"text","text":"a \\" b",@}'),
        ('{"type":"text","text":"a \\" b"}', '{@,"type":"text","text":"a \\" b"}'),
        ('{"type":"text","text":"a \\" b"}', '{"type":"text",@,"text":"a \\" b"}'),
    ],
)
def test_an_element_reads_the_same_with_and_without_marker(bare: str, marked: str, space: str) -> None:
    """Wherever the marker stood, the comma that belongs to it goes with it."""

    def body(text: str) -> bytes:
        spaced = text.replace("@", MARK).replace(",", "," + space).replace(":", ":" + space)
        return b'{"messages":[{"role":"user","content":[%b]}]}' % spaced.encode()

    without, with_marker = dialect.split(body(bare)), dialect.split(body(marked))
    assert without is not None
    assert with_marker is not None
    check_layout(with_marker)
    assert canonical(with_marker) == canonical(without)


def test_one_text_block_is_laid_out_like_a_string() -> None:
    """Claude Code turns the string of its last message into a block to mark it, and back at the next turn."""

    def body(content: str) -> bytes:
        return b'{"messages":[{"role":"system","content":%b,"output_config":{"effort":"low"}}]}' % content.encode()

    forms = ['"a\\n\\"b"', '[{"type":"text","text":"a\\n\\"b"}]', '[{"type":"text","text":"a\\n\\"b",@}]'.replace("@", MARK)]
    found = [dialect.split(body(form)) for form in forms]
    for split in found:
        assert split is not None
        check_layout(split)
    assert len({tuple(canonical(split)) for split in found if split}) == 1
    two = dialect.split(body('[{"type":"text","text":"a"},{"type":"text","text":"b"}]'))
    assert two is not None
    assert two.elements[0].cuts == ()


def test_rendered_text_shows_what_a_template_would() -> None:
    """Roles, texts, calls with their arguments, results; media as a digest; a string like one block."""
    split = dialect.split(dumps(BODY))
    assert split is not None
    texts = [dialect.render(group, element) for group, element in canonical(split)]
    assert texts == [
        'Read\nReads a file.\n{"type":"object","properties":{"cache_control":{"type":"string"}}}\n',
        "web_search\n",
        "You are an agent.\n",
        "Be brief.\n",
        "user\nlist the files\n",
        'assistant\nHmm.\nRead({"path":"a","cache_control":{"type":"ephemeral"}})\n',
        f"user\na b c\n[image {hashlib.sha256(b'aGk=').hexdigest()[:16]}]\n",
    ]
    assert dialect.render("system", b'"S"') == dialect.render("system", b'{"type":"text","text":"S"}')
    assert dialect.render("message", b'{"role":"user","content":"x"}') == dialect.render(
        "message", b'{"role":"user","content":[{"type":"text","text":"x"}]}'
    )


def test_changes_touch_nothing_else() -> None:
    """Every other byte is as it was, odd whitespace too."""
    body = b'{ "model" : "a",\n "messages":[{"role":"user","content":"hi"}] , "max_tokens":5}'
    asked = request(PATH, body, ("Content-Length", str(len(body))))
    changed = dialect.change(asked, Changes(model='b"c', max_output_tokens=7, settings=(("thinking.type", '"off"'), ("stream", "true"))))
    assert changed.body == (
        b'{ "model" : "b\\"c",\n "messages":[{"role":"user","content":"hi"}] , "max_tokens":7,"thinking":{"type":"off"},"stream":true}'
    )
    assert dict(changed.headers)["Content-Length"] == str(len(changed.body))
    assert dialect.change(asked, Changes()) is asked
    assert dialect.change(asked, Changes(report_usage=True)) is asked


def test_a_packed_request_is_changed_in_the_clear() -> None:
    """The Content-Encoding goes, the text stays."""
    asked = request(PATH, gzip.compress(dumps(BODY)), ("Content-Encoding", "gzip"))
    changed = dialect.change(asked, Changes(model="other"))
    assert changed.body == dumps({**BODY, "model": "other"})
    assert [name for name, _ in changed.headers] == ["Content-Type"]
    assert dialect.change(asked, Changes(model="claude-sonnet-4-5")) is asked


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (
            {"tools": [TOOL], "system": "S", "messages": []},
            {"tools": [{**TOOL, "description": "N\nReads a file."}], "system": "N\nS", "messages": []},
        ),
        ({"system": [{"type": "text", "text": "S"}]}, {"system": [{"type": "text", "text": "N\nS"}]}),
        ({"messages": [{"role": "user", "content": "hi"}]}, {"messages": [{"role": "user", "content": "N\nhi"}]}),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "N\n"}, {"type": "image"}]}]},
        ),
    ],
)
def test_the_nonce_comes_first(body: Any, wanted: Any) -> None:
    """At the head of the first tool and of the first text."""
    assert dialect.change(request(PATH, body), Changes(prefix_nonce="N")).body == dumps(wanted)


@pytest.mark.parametrize("body", [b"", b"[]", b"not json", b'{"model":1', b'{"messages":[]}'])
def test_a_body_that_cannot_carry_the_change_says_so(body: bytes) -> None:
    """ValueError, nothing half done."""
    with pytest.raises(ValueError, match=r"object|nonce"):
        dialect.change(request(PATH, body), Changes(prefix_nonce="N"))


def test_rarer_blocks_are_read() -> None:
    """Hidden thinking, documents by URL or as content, results of the server's own tools, and deltas without a start."""
    content = [
        {"type": "redacted_thinking", "data": "ENC"},
        {"type": "document", "source": {"type": "url", "url": "http://x"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "x"}]}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "error"}},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    ]
    call = hear(body={"messages": [{"role": "assistant", "content": content}]})
    assert call.prompt[0].parts == (
        Reasoning("", "ENC"),
        Media("document", None, "http://x"),
        Media("document", None, '[{"type":"text","text":"x"}]'),
        ToolResult("s", (Opaque("content", '{"type":"error"}'),)),
        ToolCall("s", "web_search", "{}"),
    )
    assert dialect.render("message", dumps({"role": "assistant", "content": content[:1]})).startswith("assistant\n[reasoning ")
    hidden = hear(*block(0, content[0]), *STREAM[-2:])
    assert (hidden.reply, hidden.deltas) == ((Reasoning("", "ENC"),), ())
    headless = hear(event({"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "late"}}))
    assert headless.reply == (Text("late"),)
