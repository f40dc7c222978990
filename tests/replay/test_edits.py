"""What is declared is changed, and not a byte beside it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from replay import edits
from replay.edits import Edits
from replay.plan import PlannedTurn
from storage.errors import PlayheadError, TargetError
from storage.records import ExchangeId, Request

CHAT = (
    b'{"model": "gpt-5",  "stream":true,"messages":[{"role":"system","content":"be brief"},'
    b'{"role":"user","content":"1.0 \\u00e9"}],"max_tokens":512}'
)
MESSAGES = b'{"model":"claude-sonnet-4-5","max_tokens":512, "system":"be brief","messages":[{"role":"user","content":"hi"}],"stream":true}'
TURN = PlannedTurn(
    source=ExchangeId(7),
    session=3,
    thread=1,
    number=1,
    kind="turn",
    dialect="openai_chat",
    after=(),
    gap_ns=0,
    aborted=False,
    request_sha256="0",
    prompt_tokens=10,
    output_tokens=12,
)
FREE = Edits(target="http://127.0.0.1:8000", length="free", run_nonce="n1")


def recorded(body: bytes = CHAT, path: str = "/v1/chat/completions?s=1&k=a%20b") -> Request:
    headers = (
        ("Host", "api.openai.com"),
        ("Content-Type", "application/json"),
        ("Authorization", "***:0123456789ab"),
        ("X-Session-Id", "ses_1"),
        ("Connection", "keep-alive"),
        ("Content-Length", "99"),
        ("accept-encoding", "gzip"),
        ("X-Odd", "***"),
    )
    return Request(method="POST", url=f"https://api.openai.com{path}", headers=headers, body=body)


def edited(how: Edits, body: bytes = CHAT, turn: PlannedTurn = TURN, copy: int = 0) -> bytes:
    return edits.edited(recorded(body), how, turn, copy).body


def test_without_edits_no_byte_of_the_body_changes() -> None:
    """The very same bytes, white space and escapes included."""
    assert edited(FREE) == CHAT
    assert edited(FREE, MESSAGES, replace(TURN, dialect="anthropic_messages")) == MESSAGES
    assert edited(FREE, b"not json at all") == b"not json at all"


def test_the_model_is_changed_alone() -> None:
    """Every other byte stays."""
    assert edited(replace(FREE, model="other")) == CHAT.replace(b'"gpt-5"', b'"other"')


@pytest.mark.parametrize("length", ["recorded", "cap"])
def test_a_limited_length_sets_the_limit_and_asks_for_usage(length: str) -> None:
    """Usage is how the length is known."""
    body = edited(replace(FREE, length=length))
    assert b'"max_tokens":12' in body
    assert json.loads(body)["stream_options"] == {"include_usage": True}
    assert json.loads(body)["messages"] == json.loads(CHAT)["messages"]


def test_an_unknown_length_limits_nothing() -> None:
    """A recording that was cut does not say how long the answer would have been."""
    assert b'"max_tokens":512' in edited(replace(FREE, length="recorded"), turn=replace(TURN, output_tokens=None))


def test_a_limit_that_contradicts_a_thinking_budget_is_not_set() -> None:
    """The provider would answer 400."""
    thinking = MESSAGES.replace(b'"stream"', b'"thinking":{"type":"enabled","budget_tokens": 400},"stream"')
    turn = replace(TURN, dialect="anthropic_messages")
    assert edited(replace(FREE, length="recorded"), thinking, turn) == thinking
    assert b'"max_tokens":900' in edited(replace(FREE, length="recorded"), thinking, replace(turn, output_tokens=900))


def test_a_provider_s_least_limit_is_kept() -> None:
    """Responses refuses fewer than 16."""
    assert edits.limit(replace(TURN, dialect="openai_responses"), b"") == 16
    assert edits.limit(replace(TURN, dialect="openai_responses", output_tokens=40), b"") == 40


def test_fields_are_set_as_json_or_as_text() -> None:
    """And only they change."""
    how = replace(FREE, settings=(edits.setting("temperature=0"), edits.setting("user=me"), edits.setting('a={"b": [1]}')))
    assert json.loads(edited(how)) == {**json.loads(CHAT), "temperature": 0, "user": "me", "a": {"b": [1]}}
    assert edited(how).startswith(CHAT[:-1])


@pytest.mark.parametrize("text", ["temperature", "=1", ""])
def test_a_setting_that_names_no_field_is_refused_with_a_hint(text: str) -> None:
    """One clear line."""
    with pytest.raises(PlayheadError) as wrong:
        edits.setting(text)
    assert wrong.value.hint


def test_a_cold_run_differs_from_any_other_and_each_session_and_copy_from_the_rest() -> None:
    """Turns of one session share their nonce, so that reuse inside the session stays."""
    cold = replace(FREE, cache="cold")
    first = edited(cold)
    assert first != CHAT
    assert first == edited(cold, turn=replace(TURN, source=ExchangeId(8)))
    others = {edited(cold, copy=1), edited(cold, turn=replace(TURN, session=4)), edited(replace(cold, run_nonce="n2"))}
    assert len(others | {first}) == 4
    assert b"be brief" in first


def test_a_named_salt_field_makes_a_run_cold_without_touching_the_prompt() -> None:
    """The salt differs as the nonce would."""
    cold = replace(FREE, cache="cold", settings=(edits.setting("cache_salt=mine"),))
    body = json.loads(edited(cold))
    assert body["messages"] == json.loads(CHAT)["messages"]
    assert body["cache_salt"] == "mine-n1-s3-0"
    assert json.loads(edited(replace(cold, cache="as-found")))["cache_salt"] == "mine"


def test_a_body_that_cannot_carry_an_edit_is_named() -> None:
    """With its exchange and a hint."""
    with pytest.raises(PlayheadError, match="e7 cannot carry") as wrong:
        edited(replace(FREE, model="m"), b"not json")
    assert wrong.value.hint


@pytest.mark.parametrize(
    ("target", "path", "url"),
    [
        ("http://h:1", "/v1/messages?beta=true", "http://h:1/v1/messages?beta=true"),
        ("http://h:1/", "/v1/messages", "http://h:1/v1/messages"),
        ("http://h:1/base", "/v1/messages?s=1&k=a%20b", "http://h:1/base/v1/messages?s=1&k=a%20b"),
        ("http://h:1/v1", "/v1/chat/completions", "http://h:1/v1/chat/completions"),
        ("http://h:1/api/v1", "/v1/messages", "http://h:1/api/v1/messages"),
        ("http://h:1/xv1", "/v1/messages", "http://h:1/xv1/v1/messages"),
        ("https://h", "/v1beta/models/g:generateContent?key=***&alt=sse", "https://h/v1beta/models/g:generateContent?alt=sse"),
        ("https://h", "/m?key=***", "https://h/m"),
        ("http://h", "", "http://h/"),
    ],
)
def test_the_path_and_query_are_kept_behind_the_target(target: str, path: str, url: str) -> None:
    """Only a base that both have is not doubled, and a masked key is left out."""
    assert edits.addressed(recorded(path=path), edits.target_url(target)) == url


@pytest.mark.parametrize(
    "text", ["", "localhost:8000", "ftp://h", "http://", "http://h:port", "http://h?x=1", "http://u:p@h", "http://h#x"]
)
def test_a_target_that_is_no_base_url_is_refused_with_a_hint(text: str) -> None:
    """One clear line."""
    with pytest.raises(TargetError) as wrong:
        edits.target_url(text)
    assert wrong.value.hint


def test_headers_are_kept_without_secrets_and_without_what_was_the_connections() -> None:
    """Names, order and case as recorded; nothing compressed is asked for."""
    assert edits.headers(recorded().headers, "openai_chat", None) == (
        ("Content-Type", "application/json"),
        ("X-Session-Id", "ses_1"),
        ("Accept-Encoding", "identity"),
    )


@pytest.mark.parametrize(
    ("dialect", "name", "value"),
    [
        ("anthropic_messages", "x-api-key", "k"),
        ("gemini", "x-goog-api-key", "k"),
        ("openai_chat", "Authorization", "Bearer k"),
        ("openai_responses", "Authorization", "Bearer k"),
    ],
)
def test_the_key_is_put_where_the_dialect_wants_it(dialect: str, name: str, value: str) -> None:
    """And nowhere else."""
    assert edits.headers((), dialect, "k")[-1] == (name, value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"model": "m"}, [{"edit": "model", "to": "m"}]),
        ({"length": "cap"}, [{"edit": "max_output_tokens", "to": "cap"}, {"edit": "report_usage"}]),
        ({"cache": "cold"}, [{"edit": "prefix_nonce"}]),
        (
            {"cache": "cold", "settings": (("cache_salt", '"x"'),)},
            [{"edit": "set", "field": "cache_salt", "to": "x"}, {"edit": "cache_salt", "field": "cache_salt"}],
        ),
        ({"key": "very secret"}, [{"edit": "key", "to": "***"}]),
    ],
)
def test_every_edit_is_declared_and_no_secret_is(changed: dict[str, Any], said: list[dict[str, Any]]) -> None:
    """Stored with the run."""
    always = [{"edit": "url", "to": FREE.target}, {"edit": "accept_encoding", "to": "identity"}]
    how = replace(FREE, **changed)
    assert edits.declared(how) == always + said
    assert "very secret" not in repr(how)


def test_the_policy_holds_what_two_runs_must_share() -> None:
    """Pace, length, history, cache."""
    assert edits.policy(FREE, {"gaps": "drop"}) == {"gaps": "drop", "length": "free", "history": "recorded", "cache": "as-found"}
