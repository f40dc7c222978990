"""Two ways of writing the same element are one view; what the element holds is found."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.identity.canonical import SHOWN_CHARACTERS, token, view

KEYS = ["type", "role", "content", "parts", "id", "text"]
USE = {"type": "tool_use", "id": "toolu_0001", "name": "ls", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_0001", "content": "out"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner),
    max_leaves=12,
)  # fmt: skip


def seen(value: Any) -> Any:
    """The view of a message."""
    return view("message", json.dumps(value).encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}),
        ({"role": "user", "content": "x"}, {"content": [{"type": "input_text", "text": "x"}], "role": "user", "name": None}),
        (
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        ),
        ({"role": "assistant", "content": "x", "refusal": None}, {"role": "assistant", "content": "x"}),
        (
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}", "status": "completed"},
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        ),
    ],
)
def test_the_same_meaning_has_the_same_digest(one: Any, other: Any) -> None:
    """A string is one text block; markers and item ids do not count."""
    assert seen(one).digest == seen(other).digest


def test_other_words_roles_and_calls_differ() -> None:
    """What the model would see otherwise is another element."""
    values = [
        {"role": "user", "content": "x"},
        {"role": "user", "content": "y"},
        {"role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "ls", "arguments": "{}"},
    ]
    assert len({seen(value).digest for value in values}) == len(values)


@pytest.mark.parametrize(
    ("value", "role", "calls", "answers"),
    [
        ({"role": "assistant", "content": [USE]}, "assistant", ("toolu_0001",), ()),
        ({"role": "user", "content": [RESULT]}, "user", (), ("toolu_0001",)),
        ({"role": "assistant", "tool_calls": [{"id": "call_0001", "function": {}}]}, "assistant", ("call_0001",), ()),
        ({"role": "tool", "tool_call_id": "call_0001", "content": "out"}, "tool", (), ("call_0001",)),
        ({"type": "custom_tool_call", "call_id": "call_0001", "name": "sh", "input": "x"}, "assistant", ("call_0001",), ()),
        ({"type": "custom_tool_call_output", "call_id": "call_0001", "output": "out"}, "tool", (), ("call_0001",)),
        ({"role": "model", "parts": [{"functionCall": {"id": "call_0001", "name": "ls"}}]}, "assistant", ("call_0001",), ()),
        ({"role": "user", "parts": [{"functionResponse": {"id": "call_0001", "response": {"output": "out"}}}]}, "user", (), ("call_0001",)),
    ],
)  # fmt: skip
def test_tool_calls_of_every_dialect_are_found(value: Any, role: str, calls: tuple[str, ...], answers: tuple[str, ...]) -> None:
    """Ids of calls made and answered, and what a tool gave back, which is none of the user's words."""
    found = seen(value)
    assert (found.role, found.calls, found.answers) == (role, calls, answers)
    assert found.texts == ()
    assert found.results == (("out",) if answers else ())
    assert found.tokens == {*calls, *answers}


def test_signatures_are_tokens_long_ones_by_their_hash() -> None:
    """What only one answer can have given."""
    signature = "s" * 3000
    found = seen({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": signature}]})
    assert found.tokens == {token(signature)}
    assert len(token(signature)) == 32


def test_long_texts_are_kept_short() -> None:
    """Looking up needs the beginning and the end only."""
    text = seen({"role": "user", "content": "a" + "x" * 100_000 + "z"}).texts[0]
    assert len(text) == 2 * SHOWN_CHARACTERS + 1
    assert (text[0], text[-1]) == ("a", "z")


@given(st.sampled_from(["tool", "system", "message", "item"]), st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_nothing_raises(group: str, element: bytes) -> None:
    """Whatever a stranger sends has a view."""
    assert len(view(group, element).digest) == 16


@pytest.mark.parametrize("depth", [300, 5000])
def test_deep_nesting_is_taken_as_it_is(depth: int) -> None:
    """Deeper than any parser goes."""
    assert len(view("message", b'{"role":"user","content":' + b"[" * depth + b"]" * depth + b"}").digest) == 16
