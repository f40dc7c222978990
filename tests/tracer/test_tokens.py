"""Token counts: equal to tiktoken's own, offline, linear on any text, kept by content."""

import json
import socket

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import PlayheadError
from storage.records import Element, Request
from tracer import tokens, wire
from tracer.wire.contract import Call, Text


def request(body: dict[str, object]) -> Request:
    return Request(method="POST", url="https://api.anthropic.com/v1/messages", headers=(), body=json.dumps(body).encode())


CONVERSATION: dict[str, object] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 64,
    "tools": [{"name": "Read", "description": "Reads a file.", "input_schema": {"type": "object"}}],
    "system": "You are a coding agent.",
    "messages": [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello."}],
}


def test_known_ids() -> None:
    """The vocabulary is o200k: ids that OpenAI publishes for it."""
    assert list(tokens.text_ids("hello world")) == [24912, 2375]
    assert list(tokens.text_ids("antidisestablishmentarianism")) == [493, 129901, 376, 160388, 21203, 2367]


@given(st.text(max_size=300))
@settings(max_examples=80, deadline=None)
def test_any_text_reads_back(text: str) -> None:
    """Decoding the ids gives the text again."""
    assert tokens._encoding().decode(list(tokens.text_ids(text))) == text


def test_names_of_special_tokens_are_text() -> None:
    """A captured `<|endoftext|>` is counted as the characters it is, and does not raise."""
    ids = list(tokens.text_ids("a<|endoftext|>b"))
    assert 199999 not in ids
    assert len(ids) > 4


def test_lone_surrogates_are_counted() -> None:
    """JSON can hold half a character; it counts as the replacement character."""
    assert tokens.text_ids("a\ud800b") == tokens.text_ids("a\ufffdb")


@pytest.mark.parametrize("character", [" ", "a", "\n", "字", ".", "7"])
def test_a_million_equal_characters(character: str) -> None:
    """Runs that overflow the stack of tiktoken's pattern engine are counted, always the same."""
    text = character * 1_000_000
    ids = tokens.text_ids(text)
    assert ids == tokens.text_ids(text)
    assert 5_000 < len(ids) <= 1_000_000


def test_cutting_long_runs_leaves_other_text_alone() -> None:
    """Below the lengths at which a run is cut, the ids are tiktoken's own for the whole text."""
    text = "def f(x):\n" + " " * 4000 + "return x\n" + "b" * 60_000
    assert list(tokens.text_ids(text)) == tokens._encoding().encode_ordinary(text)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The vocabulary loads with no network and without tiktoken's cache."""

    def refuse(*_args: object, **_more: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(tiktoken, "get_encoding", refuse)
    tokens._encoding.cache_clear()
    assert len(tokens.text_ids("hello")) == 1


def test_a_vocabulary_that_was_changed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranks would give other counts: better none."""
    monkeypatch.setattr(tokens, "_SHA256", "0" * 64)
    with pytest.raises(PlayheadError, match="sha256"):
        tokens._vocabulary()


def test_a_vocabulary_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line and a hint instead of a traceback."""
    monkeypatch.setattr(tokens, "NAME", "no_such")
    with pytest.raises(PlayheadError, match="cannot be read") as told:
        tokens._vocabulary()
    assert told.value.hint


def test_a_prompt_is_its_elements_in_prompt_order() -> None:
    """Tools, then system, then messages; each element's ids are those of what its dialect renders."""
    found = tokens.prompt_ids(request(CONVERSATION))
    assert found is not None
    assert [group for group, _ in found] == ["tool", "system", "message", "message"]
    dialect = wire.named("anthropic_messages")
    assert found[2][1] == tokens.text_ids(dialect.render("message", b'{"role": "user", "content": "Say hello."}'))


def test_growing_a_prompt_leaves_its_head_alone() -> None:
    """A turn more adds elements behind the others and changes none."""
    longer = CONVERSATION | {"messages": [*CONVERSATION["messages"], {"role": "user", "content": "More."}]}  # type: ignore[misc]
    first, second = tokens.prompt_ids(request(CONVERSATION)), tokens.prompt_ids(request(longer))
    assert first is not None
    assert second is not None
    assert second[: len(first)] == first


def test_what_is_no_model_call_has_no_prompt() -> None:
    """Unknown traffic and bodies that are not JSON are not counted."""
    assert tokens.prompt_ids(Request(method="GET", url="https://example.org/", headers=(), body=b"")) is None
    assert tokens.prompt_ids(Request(method="POST", url="https://api.anthropic.com/v1/messages", headers=(), body=b"{")) is None


def test_cuts_are_left_out() -> None:
    """The canonical bytes of an element are its span without its cuts."""
    assert tokens.canonical(b"..abcdef..", Element("message", 2, 8, ((3, 5), (6, 7)))) == b"adf"


def test_equal_elements_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second request for the same content is answered from memory."""
    seen: list[str] = []
    real = tokens.text_ids
    monkeypatch.setattr(tokens, "text_ids", lambda text: seen.append(text) or real(text))
    cache, dialect = tokens.ElementIds(), wire.named("anthropic_messages")
    element = b'{"role":"user","content":"once"}'
    assert cache.ids(dialect, "message", element) is cache.ids(dialect, "message", element)
    assert len(seen) == 1


def test_memory_is_bounded() -> None:
    """What was used longest ago is forgotten when the capacity is passed; the counts stay right."""
    cache, dialect = tokens.ElementIds(capacity_tokens=40), wire.named("anthropic_messages")
    elements = [json.dumps({"role": "user", "content": f"number {n} " * 5}).encode() for n in range(9)]
    first = [list(cache.ids(dialect, "message", element)) for element in elements]
    assert cache._held <= 40
    assert [list(cache.ids(dialect, "message", element)) for element in elements] == first


def test_an_answer_counts_as_the_message_it_becomes() -> None:
    """What was generated has the ids that the next request's element has: that is what a cache can find again."""
    dialect = wire.named("anthropic_messages")
    carried = b'{"role":"assistant","content":[{"type":"text","text":"Done."}]}'
    assert tokens.reply_ids(Call(reply=(Text("Done."),)), dialect.NAME) == tokens.element_ids(dialect, "message", carried)
    assert len(tokens.reply_ids(Call(), dialect.NAME)) == 0
