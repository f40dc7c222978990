"""Captured names in a report: no format gives on what a terminal or a spreadsheet would obey."""

import importlib

import pytest
from reuse_traces import body, exchange, record

from replay.report.collecting import Asked, collect
from replay.report.facts import Facts
from replay.report.plain import plain
from storage.trace import Trace

HOSTILE = "=cmd()\x1b]0;owned\x07\x9b31m\u202etxt\u2028\x00\r"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """The facts of a recording whose model has a hostile name."""
    path = tmp_path_factory.mktemp("hostile") / "a.trace"
    with Trace.open(path, create=True) as trace:
        record(trace, [exchange(turn, body(turn, model=HOSTILE), None) for turn in (1, 2)])
        return collect(trace, Asked(), made_ns=0)


@pytest.mark.parametrize("form", ["html", "terminal", "markdown", "json", "csv"])
def test_no_format_gives_control_characters_on(collected: Facts, form: str) -> None:
    """Neither raw nor as an escape; the name is there all the same."""
    text = importlib.import_module(f"replay.report.{form}").render(collected)
    assert not [c for c in text if c not in "\n\t" and c in HOSTILE and not c.isprintable()]
    assert "\\u001b" not in text
    assert form in ("terminal", "markdown") or "cmd()" in text


def test_no_cell_begins_a_formula(collected: Facts) -> None:
    """A spreadsheet shows the name and does not compute it."""
    text = importlib.import_module("replay.report.csv").render(collected)
    assert "'=cmd()" in text
    assert ",=cmd()" not in text


def test_plain_keeps_the_shape() -> None:
    """Only texts change, wherever they stand; line ends, tabs and all other writing stay."""
    facts = {"a\x1b": [("é\n\t漢", "\x07"), 1, None, 2.5, True], "b": {"c": "\ud800"}}
    assert plain(facts) == {"a\ufffd": [("é\n\t漢", "\ufffd"), 1, None, 2.5, True], "b": {"c": "\ufffd"}}
