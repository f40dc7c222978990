"""Spans of JSON values are exact, whatever the writing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.wire import json_spans
from tracer.wire.json_spans import Member, find, items, leading_items, member, members, mend

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {},
        {"indent": 2},
        {"indent": "\t", "separators": (" ,\r\n", " : ")},
        {"ensure_ascii": False},
    ]
)


def written(value: Any, style: dict[str, Any], around: str = "") -> bytes:
    """JSON in one of the ways clients write it; lone surrogates only as escapes."""
    text = around + json.dumps(value, **style) + around
    return text.encode("utf-8", "surrogatepass")


@given(st.dictionaries(st.text(), VALUES, max_size=6), STYLES, st.sampled_from(["", " ", "\r\n\t"]))
def test_members_are_where_a_parser_finds_them(value: dict[str, Any], style: dict[str, Any], around: str) -> None:
    """Keys in order, and each span parses to its value."""
    text = written(value, style, around)
    found = members(text)
    assert found is not None
    assert [each.key for each in found] == list(value)
    for each in found:
        assert json.loads(text[each.value : each.end]) == value[each.key]
        assert text[each.start : each.start + 1] == b'"'


@given(st.lists(VALUES, max_size=6), STYLES, st.sampled_from(["", " ", "\n\n"]))
def test_items_are_where_a_parser_finds_them(value: list[Any], style: dict[str, Any], around: str) -> None:
    """Each span parses to its item."""
    text = written(value, style, around)
    found = items(text)
    assert found is not None
    assert [json.loads(text[start:end]) for start, end in found] == value
    shifted = items(b"####" + text, (4, 4 + len(text)))
    assert shifted == [(start + 4, end + 4) for start, end in found]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "\u00fc"]), VALUES), max_size=6), STYLES)
def test_doubled_keys_are_all_found(pairs: list[tuple[str, Any]], style: dict[str, Any]) -> None:
    """Every member keeps its own value; the last of a name is what a parser would give."""
    text = b"{" + b" ,".join(written(key, {}) + b":" + written(value, style) for key, value in pairs) + b"}"
    found = members(text)
    assert found is not None
    assert [(each.key, json.loads(text[each.value : each.end])) for each in found] == pairs
    for key, value in dict(pairs).items():
        span = member(text, key)
        assert span is not None
        assert json.loads(text[slice(*span)]) == value


def test_numbers_that_begin_alike_are_told_apart() -> None:
    """The value kept for a doubled key is a prefix of the earlier one."""
    assert members(b'{"a":12,"a":1}') == (Member("a", 1, 5, 7), Member("a", 8, 12, 13))
    assert members(b'{"a":[1],"b":{},"a":"]"}') == (Member("a", 1, 5, 8), Member("b", 9, 13, 15), Member("a", 16, 20, 23))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b"{]",
        b'{"a":1,}',
        b'{"a":01}',
        b'{"a":1}x',
        b"nul",
        b'{"a":NaN}',
        b'{"\xff":1}',
        b"\xef\xbb\xbf{}",
        b'{"a":"\x01"}',
    ],
)
def test_what_is_no_object_is_none(text: bytes) -> None:
    """Refused, not guessed."""
    assert members(text) is None


@pytest.mark.parametrize("text", [b"", b"[", b"{}", b"[1,]", b"[1 2]", b'["\\ud8', b"[[]"])
def test_what_is_no_array_is_none(text: bytes) -> None:
    """Refused, not guessed."""
    assert items(text) is None


def test_lone_surrogates_are_read_at_their_places() -> None:
    """Clients that cut a text inside an emoji send them; real pairs and escaped backslashes stay."""
    text = rb'{"a":"\ud83d","b":["\udc00x",1],"c\ud83d\ude00":"\\ud800\ud83d\ude00"}'
    found = members(text)
    assert found is not None
    assert [text[each.value : each.end] for each in found] == [rb'"\ud83d"', rb'["\udc00x",1]', rb'"\\ud800\ud83d\ude00"']
    assert found[2].key == "c😀"
    assert items(text, (found[1].value, found[1].end)) == [(19, 28), (29, 30)]
    assert len(mend(text)) == len(text)
    assert json.loads(mend(text)) == {"a": "\ufffd", "b": ["\ufffdx", 1], "c😀": "\\ud800😀"}


def test_deep_nesting_is_walked_or_refused() -> None:
    """3,000 levels do not crash, nor a million."""
    for levels in (3_000, 1_000_000):
        text = b'{"a":' + b"[" * levels + b"]" * levels + b',"b":1}'
        found = members(text)
        assert found is None or (len(found) == 2 and text[found[1].value : found[1].end] == b"1")
        items(text[5:-7])


def test_big_numbers_and_invalid_text_inside_are_left_alone() -> None:
    """Spans need no value."""
    text = b'{"a":1e999,"b":123456789012345678901234567890,"c":"\xff"}'
    found = members(text)
    assert found is not None
    assert [text[each.value : each.end] for each in found] == [b"1e999", b"123456789012345678901234567890", b'"\xff"']


def test_a_path_leads_to_its_value() -> None:
    """Keys and indexes, from the end too; None where it leads nowhere."""
    text = b'{"a":[{"b":1},{"b":[2,3]}],"a b":{"":4}}'
    assert find(text, ("a", 1, "b", -1)) == (22, 23)
    assert find(text, ("a b", "")) == (37, 38)
    assert find(text, ()) == (0, len(text))
    for path in (("x",), ("a", 2), ("a", "b"), ("a", 0, 0), ("a b", 0)):
        assert find(text, path) is None


def test_leading_items_of_an_array_still_growing() -> None:
    """Those that stand whole, also when more is to come or the rest is broken."""
    assert leading_items(b' [{"a":"]}"} , {"b":[1]},\n{"c":', 1) == [(2, 12), (15, 24)]
    assert leading_items(b'[[1],{}] {"x":1}', 0) == [(1, 4), (5, 7)]
    assert leading_items(b"[1,2]", 0) == []


@given(st.binary() | st.text().map(str.encode) | VALUES.map(lambda value: json.dumps(value).encode()), st.integers(0, 5))
def test_no_bytes_raise(text: bytes, start: int) -> None:
    """None, or spans inside the text."""
    for found in (items(text), items(text, (min(start, len(text)), len(text)))):
        assert all(0 <= a < b <= len(text) for a, b in found or ())
    for each in members(text) or ():
        assert 0 <= each.start < each.value < each.end <= len(text)
    leading_items(text, 0)
    find(text, ("a", 0))
    json_spans.kind(text, (0, 0))
