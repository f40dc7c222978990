"""Single values of a JSON text are changed, and nothing else."""

import pytest

from tracer.wire.edits import checked, prefixed_at, prefixed_content, put, steps


@pytest.mark.parametrize(
    ("text", "path", "wanted"),
    [
        (b' { "a" : 1 } ', "a", b' { "a" : 9 } '),
        (b"{}", "a", b'{"a":9}'),
        (b'{ "b":1 }', "a.c", b'{ "b":1,"a":{"c":9} }'),
        (b'{"a":null}', "a.c", b'{"a":{"c":9}}'),
        (b'{"a":[{"b":1},{}]}', "a.1.c", b'{"a":[{"b":1},{"c":9}]}'),
        (b'{"a":[1,2]}', "a.1", b'{"a":[1,9]}'),
        (b'{"a":1,"a":2}', "a", b'{"a":1,"a":9}'),
        (b'{"a":{"0":1}}', "a.b", b'{"a":{"0":1,"b":9}}'),
        (b'{"a":"\\ud83d"}', "b", b'{"a":"\\ud83d","b":9}'),
    ],
)
def test_a_value_is_put_where_the_path_leads(text: bytes, path: str, wanted: bytes) -> None:
    """Replaced where it is, else made, with the objects on the way; of doubled keys the last counts."""
    assert put(text, steps(path), b"9") == wanted


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b"[]", "a"),
        (b"x", "a"),
        (b'{"a":1}', "a.b"),
        (b'{"a":[]}', "a.0"),
        (b'{"a":[1]}', "a.3.b"),
        (b'{"a":[1]}', "a.b"),
        (b"[{}]", "0.0.b"),
    ],
)
def test_a_text_that_has_no_place_for_it_says_so(text: bytes, path: str) -> None:
    """Arrays are not made longer, values not turned into objects."""
    with pytest.raises(ValueError, match=r"no (JSON object|place|item)"):
        put(text, steps(path), b"9")


def test_values_given_by_a_user_are_checked() -> None:
    """JSON text, or an error that shows it."""
    assert checked(' {"a": 1} ') == b'{"a": 1}'
    with pytest.raises(ValueError, match="not a JSON value: high"):
        checked("high")


def test_texts_are_put_in_front() -> None:
    """Of the first string among the places; escaped as JSON."""
    assert prefixed_at(b'{"a":1,"b":"x"}', 'say "n"\n', ("a",), ("b",)) == b'{"a":1,"b":"say \\"n\\"\\nx"}'
    assert prefixed_at(b'{"a":1}', "n", ("a",), ("b",)) is None
    assert prefixed_content(b'{"c":[]}', ("c",), "n", b'{"text":') == b'{"c":[{"text":"n"}]}'
    assert prefixed_content(b'{"c":{}}', ("c",), "n", b'{"text":') is None
