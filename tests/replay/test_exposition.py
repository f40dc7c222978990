"""Prometheus's text format, line by line, and what is made of lines that are none."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.exposition import Sample, samples

PAGE = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a/b"} 1.234e+03
llamacpp:prompt_tokens_total 17
  spaced_total \t{ a = "1" , b="2", }  3  1395066363000
bucket{le="+Inf"} 5
up +Inf
down -Inf
odd NaN
glued{a="}"}9
exemplar_total{a="1"} 7 # {trace_id="x"} 1 2
"""


def test_a_page_gives_its_samples_in_order() -> None:
    """With labels, spaces, timestamps, infinities and exemplars."""
    assert [sample for sample in samples(PAGE) if sample.name != "odd"] == [
        Sample("vllm:prompt_tokens_total", (("engine", "0"), ("model_name", "a/b")), 1234.0),
        Sample("llamacpp:prompt_tokens_total", (), 17.0),
        Sample("spaced_total", (("a", "1"), ("b", "2")), 3.0),
        Sample("bucket", (("le", "+Inf"),), 5.0),
        Sample("up", (), math.inf),
        Sample("down", (), -math.inf),
        Sample("glued", (("a", "}"),), 9.0),
        Sample("exemplar_total", (("a", "1"),), 7.0),
    ]
    (odd,) = [sample for sample in samples(PAGE) if sample.name == "odd"]
    assert math.isnan(odd.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [(r"a\"b", 'a"b'), (r"a\\b", r"a\b"), (r"a\nb", "a\nb"), (r"C:\dir", r"C:\dir"), (r"\\n", r"\n"), ("{x},y=", "{x},y="), ("", "")],
)
def test_escapes_in_a_label_are_undone(written: str, meant: str) -> None:
    """Backslash, quote, line feed; another backslash stands for itself."""
    assert samples(f'm{{l="{written}",other="o"}} 1') == (Sample("m", (("l", meant), ("other", "o")), 1.0),)


@pytest.mark.parametrize(
    "line",
    [
        "", "name", "name{", 'name{a="1} 2', "name{a=1} 2", 'name{a="1" b="2"} 3', 'name{="1"} 2', "name 1_000", "name one", "1name 2",
        "name 1 2 3", "{}", '{"iteration": 1}', "<html>", "name 1 soon", 'name{a="1"}',
    ],
)  # fmt: skip
def test_what_is_no_sample_is_left_out(line: str) -> None:
    """And the lines around it are read."""
    assert samples(f"before 1\n{line}\nafter 2\r\n") == (Sample("before", (), 1.0), Sample("after", (), 2.0))


NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]*", fullmatch=True)
LABELS = st.lists(st.tuples(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True), st.text(st.characters(codec="utf-8"))), max_size=4)


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@given(name=NAMES, labels=LABELS, value=st.floats(allow_nan=False), stamp=st.none() | st.integers(0, 2**60))
def test_what_is_written_by_the_rules_is_read_back(name: str, labels: list[tuple[str, str]], value: float, stamp: int | None) -> None:
    """Any name, any label value, any number."""
    inside = ",".join(f'{label}="{escaped(said)}"' for label, said in labels)
    line = f"{name}{{{inside}}} {value!r}" + ("" if stamp is None else f" {stamp}")
    assert samples(line) == (Sample(name, tuple(labels), value),)


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    """A page may be anything."""
    for sample in samples(text):
        assert sample.name
