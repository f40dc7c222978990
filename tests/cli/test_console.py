"""What commands print: hostile text made harmless, tables that fit, figures as people read them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import console
from cli.console import Column


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("plain text", "plain text"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a new title\x07after", "after"),
        ("\x1b]8;;http://evil.test\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1bPq a sixel \x1b\\after", "after"),
        ("\x9b2Jcleared", "cleared"),
        ("\x1b(0line drawing", "line drawing"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("bell\x07 and nul\x00", "bell\ufffd and nul\ufffd"),
        ("over\rwritten", "over\ufffdwritten"),
        ("right\u202eto left", "right\ufffdto left"),
        ("\x1b[31", ""),
        ("half a surrogate \ud800", "half a surrogate \ufffd"),
        ("naïve 漢字 🙂", "naïve 漢字 🙂"),
    ],
)
def test_captured_text_cannot_steer_the_terminal(hostile: str, harmless: str) -> None:
    """Escape sequences go, other control and direction characters become a visible replacement, the rest stays."""
    assert console.plain(hostile) == harmless


@given(st.text(st.characters(codec=None)))
def test_nothing_unsafe_is_left_of_any_text(text: str) -> None:
    """Whatever was captured, what is printed has no control character but line ends and tabs, and is stable when cleaned again."""
    cleaned = console.plain_lines(text)
    assert not any(console.unsafe(character) for character in cleaned if character not in "\n\t")
    assert console.plain_lines(cleaned) == cleaned
    assert "\n" not in console.plain(text)


def test_lines_and_tabs_are_kept_where_asked() -> None:
    """A body that is shown keeps its lines; a Windows line end is one line end."""
    assert console.plain_lines("a\r\nb\tc\x1b[2J") == "a\nb\tc"


def test_a_table_is_aligned_and_shows_what_is_unknown() -> None:
    """Text to the left, figures to the right, None as a dash, no trailing blanks."""
    lines = console.table_lines([("e1", 12), ("e1000", None)], ["id", Column(title="tokens", right=True)], 80)
    assert lines == ["id     tokens", "e1         12", "e1000       -"]


def test_a_wide_table_cuts_its_widest_text_first() -> None:
    """80 columns: the long name is cut with an ellipsis, figures and whole columns are not."""
    rows = [("s1", "n" * 90, "a model", "1,234,567")]
    lines = console.table_lines(rows, [Column(title="id", whole=True), "name", "model", Column(title="tokens", right=True)], 80)
    assert max(console.width(line) for line in lines) == 80
    assert lines[1].startswith("s1  nnnn")
    assert "…" in lines[1]
    assert lines[1].endswith("a model  1,234,567")


def test_optional_columns_go_when_cutting_is_not_enough() -> None:
    """The last optional column is left out first; the others stay."""
    whole = [Column(title=title, whole=True) for title in ("one", "two")]
    rows = [("x" * 30, "y" * 30, "z" * 30, "w" * 10)]
    columns = [*whole, Column(title="three", whole=True, optional=True), Column(title="four", whole=True, optional=True)]
    assert console.table_lines(rows, columns, 80)[0].split() == ["one", "two"]
    assert console.table_lines(rows, columns, 100)[0].split() == ["one", "two", "three"]
    assert console.table_lines(rows, columns, 120)[0].split() == ["one", "two", "three", "four"]


@given(
    st.lists(st.tuples(st.text(), st.text(max_size=200), st.integers(0, 10**9)), max_size=5),
    st.integers(40, 200),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, int]], fit: int) -> None:
    """Whatever the cells hold, wide characters included, every line fits."""
    lines = console.table_lines(rows, ["name", "text", Column(title="n", right=True)], fit)
    assert len(lines) == len(rows) + 1
    assert all(console.width(line) <= fit for line in lines)


def test_the_terminals_width_is_obeyed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """COLUMNS says how wide the terminal is; without a terminal it is 80."""
    monkeypatch.setenv("COLUMNS", "60")
    console.table([("a" * 100,)], ["text"])
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [4, 60]
    monkeypatch.delenv("COLUMNS")
    console.table([("a" * 100,)], ["text"])
    assert len(capsys.readouterr().out.splitlines()[1]) == 80


def test_wide_characters_take_two_columns() -> None:
    """East Asian text is counted as a terminal shows it, and cut before it would stick out; a combining accent takes none."""
    assert console.width("漢字a") == 5
    assert console.width("e\u0301") == 1
    assert console.shortened("漢字漢字", 6) == "漢字…"
    assert console.shortened("abcdef", 6) == "abcdef"


def test_documents_go_to_stdout_and_talk_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads our stdout reads JSON only."""
    console.document({"name": "naïve", "ids": [1, None]})
    console.say("talk")
    out, err = capsys.readouterr()
    assert json.loads(out) == {"name": "naïve", "ids": [1, None]}
    assert err == "talk\n"


class _Terminal:
    def __init__(self, answer: bool) -> None:
        self.isatty = lambda: answer


@pytest.mark.parametrize(
    ("environment", "is_terminal", "coloured"),
    [({}, True, True), ({}, False, False), ({"NO_COLOR": "1"}, True, False), ({"TERM": "dumb"}, True, False)],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], is_terminal: bool, coloured: bool
) -> None:
    """NO_COLOR, a dumb terminal and a pipe get none."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    tinted = console.tint("error:", "red", _Terminal(is_terminal))  # type: ignore[arg-type]
    assert ("\x1b[31m" in tinted) is coloured
    assert "error:" in tinted


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, None),
        (0.421, "0.42 ms"),
        (8.44, "8.4 ms"),
        (412.3, "412 ms"),
        (9_999.0, "9,999 ms"),
        (12_345.0, "12.3 s"),
        (-0.5, "-0.50 ms"),
    ],
)
def test_latencies_read_in_the_unit_that_suits_them(value: float | None, said: str | None) -> None:
    """Two or three figures that matter; unknown stays unknown."""
    assert console.milliseconds(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, None), (0.04, "0.0 s"), (12.34, "12.3 s"), (59.94, "59.9 s"), (59.96, "1 min 00 s"), (185, "3 min 05 s"), (7500, "2 h 05 min")],
)
def test_durations_read_in_the_unit_that_suits_them(seconds: float | None, said: str | None) -> None:
    """Seconds, minutes, hours; never `60.0 s`."""
    assert console.duration(seconds) == said


@pytest.mark.parametrize(
    ("length", "said"), [(None, None), (812, "812 B"), (12_345, "12.3 kB"), (4_500_000, "4.5 MB"), (7_000_000_000_000, "7000.0 GB")]
)
def test_sizes_read_in_the_unit_that_suits_them(length: int | None, said: str | None) -> None:
    """Decimal units, as disks are sold."""
    assert console.size(length) == said


def test_counts_and_shares() -> None:
    """Groups of three, percent with one decimal, and None for what is not known."""
    assert (console.count(1234567), console.count(None)) == ("1,234,567", None)
    assert (console.share(0.9523), console.share(None)) == ("95.2 %", None)


def test_a_paragraph_is_no_wider_than_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """However wide the terminal is; words stay whole, and the first line's indent goes on."""
    console.paragraph("      " + "word-of-twenty-columns " * 8 + "x" * 100)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("      ") for line in lines)
    assert [len(line) <= 80 for line in lines] == [True] * (len(lines) - 1) + [False]
    assert lines[-1].strip() == "x" * 100
