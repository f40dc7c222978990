"""What holds for every dialect: names, dispatch, and that no bytes raise."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_answers import JSON, SSE, check_layout, dumps, exchange, request

from storage.records import Exchange, Request, Transport
from tracer import wire
from tracer.wire import json_values, requests
from tracer.wire.contract import Changes, Dialect

PATHS = {
    "anthropic_messages": "/v1/messages",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "gemini": "/v1beta/models/m:streamGenerateContent",
}
NAMES = """
    type role content text messages input contents parts tools system tool_calls function name arguments index usage delta choices
    candidates response item output_index content_block message error cache_control id output_text tool_use tool_result source
    functionCall functionResponse usageMetadata input_tokens prompt_tokens message_start content_block_delta text_delta output
    response.output_text.delta response.completed finish_reason stop_reason thinking reasoning image user assistant additional_tools
"""
WORDS = st.sampled_from(NAMES.split())
ODD = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS | st.text(max_size=5)
VALUES = st.recursive(ODD, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=25)
BODIES = st.binary(max_size=80) | VALUES.map(lambda value: json.dumps(value).encode())
EVENTS = BODIES.map(lambda body: b"data: " + body + b"\n\n")
ENCODINGS = st.sampled_from([(), (("Content-Encoding", "gzip"),), (("content-encoding", "br, zstd"),)])


def test_every_dialect_is_found_by_name_and_by_request() -> None:
    """And no request belongs to two."""
    for name, path in PATHS.items():
        asked = request(path, {})
        dialect = wire.named(name)
        assert name == dialect.NAME
        assert wire.dialect_of(asked) is dialect
        assert [each.NAME for each in wire.DIALECTS if each.matches(asked)] == [name]
    with pytest.raises(KeyError):
        wire.named("telnet")


@pytest.mark.parametrize(
    "asked",
    [
        request("/v1/models", {}),
        Request(method="GET", url="http://h/v1/messages", headers=(), body=b""),
        Request(method="POST", url="http://[half/v1/messages", headers=(), body=b""),
        Request(method="POST", url="", headers=(), body=b""),
    ],
)
def test_unknown_traffic_is_unread(asked: Request) -> None:
    """Not split, not read, no error."""
    assert wire.dialect_of(asked) is None
    assert wire.split(asked) is None
    assert wire.read(Exchange(started_ns=0, request=asked)) is None
    assert requests.host(asked) in ("127.0.0.1", "h", "")


def test_a_body_in_an_unknown_coding_is_kept_whole() -> None:
    """Neither split nor misread."""
    asked = request("/v1/messages", {"messages": []}, ("Content-Encoding", "sevenzip"))
    assert wire.split(asked) is None
    found = wire.read(Exchange(started_ns=0, request=asked))
    assert found is not None
    assert found[1].prompt == ()


@pytest.mark.parametrize("path", PATHS.values())
@given(
    body=BODIES,
    pieces=st.lists(BODIES | BODIES.map(lambda body: b"data: " + body + b"\n\n"), max_size=4),
    encoding=ENCODINGS,
    how=st.data(),
)
def test_no_bytes_raise_when_read(path: str, body: bytes, pieces: list[bytes], encoding: Any, how: st.DataObject) -> None:
    """Whatever is asked and answered, in whatever coding it claims to be."""
    kind, status = how.draw(st.sampled_from([SSE, JSON, "text/html"])), how.draw(st.sampled_from([101, 200, 429, 500]))
    transport = how.draw(st.sampled_from([Transport.HTTP1, Transport.WS]))
    made = exchange(request(path, body, *encoding), pieces, kind=kind, status=status, headers=encoding, transport=transport)
    found = wire.read(made)
    assert found is not None
    call = found[1]
    json.dumps(call.settings)
    for part in (*call.reply, *call.prompt, *call.deltas, call.error, call.model):
        repr(part).encode()
    assert all(delta.text for delta in call.deltas)


@pytest.mark.parametrize("dialect", wire.DIALECTS, ids=lambda dialect: dialect.NAME)
@given(body=BODIES)
def test_no_bytes_raise_when_split(dialect: Dialect, body: bytes) -> None:
    """What is split comes back, and every element renders."""
    split = dialect.split(body)
    if split is not None:
        check_layout(split)
        for element in split.elements:
            dialect.render(element.group, wire.layout.kept(body, element)).encode()


@pytest.mark.parametrize("dialect", wire.DIALECTS, ids=lambda dialect: dialect.NAME)
@given(body=BODIES, group=st.sampled_from(["tool", "system", "message", "item", "other"]))
def test_no_bytes_raise_when_rendered(dialect: Dialect, body: bytes, group: str) -> None:
    """The same bytes, the same text."""
    assert dialect.render(group, body) == dialect.render(group, body)


@pytest.mark.parametrize("path", PATHS.values())
@given(body=BODIES, changes=st.builds(Changes, max_output_tokens=st.none() | st.just(5), prefix_nonce=st.none() | st.text(max_size=4)))
def test_a_change_works_or_says_why_not(path: str, body: bytes, changes: Changes) -> None:
    """ValueError, or a body that is still JSON."""
    asked = request(path, body)
    dialect = wire.dialect_of(asked)
    assert dialect is not None
    try:
        changed = dialect.change(asked, changes)
    except ValueError:
        return
    if changed.body != body:
        json.loads(changed.body)


@pytest.mark.parametrize("path", PATHS.values())
@given(body=VALUES.filter(lambda value: isinstance(value, dict)), name=st.text(max_size=6))
def test_a_changed_model_changes_nothing_else(path: str, body: dict[str, Any], name: str) -> None:
    """Parsed, the bodies differ in the model only; for Gemini in the URL only."""
    asked = request(path, {"model": "before", **body})
    dialect = wire.dialect_of(asked)
    assert dialect is not None
    changed = dialect.change(asked, Changes(model=name))
    wanted = asked.body if dialect.NAME == "gemini" else dumps({"model": name, **body})
    assert changed.body == wanted


def test_deep_and_odd_settings_stay_writable() -> None:
    """What no writer of JSON takes stays text: too deep (in Python 3.12 the parser goes no further than some hundreds), too big."""
    levels = 3000 if sys.version_info >= (3, 13) else 300
    deep = b"[" * levels + b"]" * levels
    body = b'{"model":"m","messages":[],"deep":%b,"huge":1e999,"number":12345678901234567890123,"half":"\\ud83d","a":null}' % deep
    found = wire.read(Exchange(started_ns=0, request=request("/v1/messages", body)))
    assert found is not None
    settings = found[1].settings
    assert settings["deep"] == deep.decode()
    assert settings["huge"] == "1e999"
    assert settings["half"] == "\ufffd"
    assert settings["a"] is None
    json.dumps(settings)
    assert wire.split(request("/v1/messages", b'{"messages":[%b]}' % deep)) is not None
    assert wire.split(request("/v1/messages", b'{"messages":%b' % (b"[" * 1_000_000))) is None


def test_counts_are_whole_numbers_in_range() -> None:
    """Anything else is unknown."""
    raws = [b"12", b"12.0", b"12.5", b"-1", b"true", b'"3"', b"null", b"1e300", b"9007199254740993", None, b"x"]
    assert [json_values.integer(raw) for raw in raws] == [12, 12, *[None] * 9]


def test_invalid_utf8_in_a_text_is_replaced() -> None:
    """Never an exception, never a lone surrogate."""
    assert json_values.string(b'"a\xffb"') == "a\ufffdb"
    assert json_values.string(b'"\\ud83d!"') == "\ufffd!"
    assert json_values.string(b'"\\ud83d\\ude00"') == "😀"
