"""The report as text, Markdown, CSV and JSON: the same facts, each safe in its own medium."""

import csv as read_csv
import io
import json as read_json
from typing import Any

import pytest

from replay.report import csv, figures, headline, json, markdown, terminal
from replay.report.facts import Facts


def first(facts: Facts, **more: Any) -> Facts:
    """The first subject alone, changed."""
    return {**facts, "subjects": [{**facts["subjects"][0], **more}], "comparison": None}


def test_text_fits_a_terminal(two_runs: Facts) -> None:
    """80 columns, failures and verdict before all."""
    lines = terminal.render(two_runs).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[3].startswith("1 of 33 exchanges of r2 failed")
    assert any(line.startswith("ttft_ms") and "worse *" in line for line in lines)
    assert any(line.startswith("share") and "79.3 %" in line for line in lines)


def test_text_obeys_nothing(two_runs: Facts) -> None:
    """Escape sequences and direction marks in captured names do not reach the terminal; long ones are cut."""
    text = terminal.render(first(two_runs, name="\x1b]0;owned\x07\x1b[31m\u202egpj.exe" * 9, failures={"\x1b[2J" * 40: 2}))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_text_says_what_it_leaves_out(two_runs: Facts) -> None:
    """More turns than fit: how many there are and where they are."""
    rows = two_runs["subjects"][0]["rows"] * 3
    assert "… and 59 more: --format csv has all" in terminal.render(first(two_runs, rows=rows))


def test_csv_has_every_figure_of_every_exchange(two_runs: Facts) -> None:
    """A row each; unknown is empty, known is exact."""
    rows = list(read_csv.DictReader(io.StringIO(csv.render(two_runs))))
    assert len(rows) == 66
    facts = {row["exchange"]: row for subject in two_runs["subjects"] for row in subject["rows"]}
    for row in rows:
        truth = facts[row["exchange"]]
        assert row["ttft_ms"] == ("" if truth["ttft_ms"] is None else str(truth["ttft_ms"]))
        assert row["reported"] == ("" if truth["reported"] is None else str(truth["reported"]))


def test_csv_is_no_formula(two_runs: Facts) -> None:
    """A model named like a formula is text in a spreadsheet."""
    row = {**two_runs["subjects"][0]["rows"][0], "model": '=HYPERLINK("http://x")', "at": {"path": "system[0]", "byte": None, "token": 7}}
    found = next(read_csv.DictReader(io.StringIO(csv.render(first(two_runs, rows=[row])))))
    assert found["model"].startswith("'=")
    assert (found["at_path"], found["at_token"]) == ("system[0]", "7")


def test_csv_of_nothing(two_runs: Facts) -> None:
    """Only a head."""
    assert csv.render(first(two_runs, rows=[])) == "subject,exchange\n"


def test_json_is_the_facts(two_runs: Facts) -> None:
    """One document, nothing lost."""
    assert read_json.loads(json.render(two_runs)) == read_json.loads(read_json.dumps(two_runs))


def test_markdown_tables_hold(two_runs: Facts) -> None:
    """Each table has the same number of cells in each line, whatever a name says."""
    text = markdown.render(first(two_runs, name="a | b <img src=x> `c`", models=["|"]))
    assert "<img" not in text.replace("\\<", "")
    assert r"a \| b \<img" in text
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1, lines


def test_markdown_has_the_comparison(two_runs: Facts) -> None:
    """With verdicts."""
    text = markdown.render(two_runs)
    assert "## Comparison" in text
    assert r"| ttft\_ms | worse \* |" in text


@pytest.mark.parametrize(
    ("verdict", "begins"),
    [
        ("worse", "r2 takes longer than r1 to its first token"),
        ("better", "r2 takes less time than r1 to its first token"),
        ("no difference", "No difference between r1 and r2 in time to first token"),
        ("inconclusive", "Inconclusive: time to first token of r2 against r1"),
    ],
)
def test_the_headline_is_the_verdict(two_runs: Facts, verdict: str, begins: str) -> None:
    """In words, with ratio, interval and n."""
    verdicts = [{**one, "verdict": verdict} for one in two_runs["comparison"]["verdicts"]]
    said = headline.sentences({**two_runs, "comparison": {**two_runs["comparison"], "verdicts": verdicts}})
    assert said[1].startswith(begins)
    assert "95 % interval" in said[1]
    assert "32 paired turns of 3 sessions" in said[1]


def test_no_latency_in_common(two_runs: Facts) -> None:
    """Said, not guessed."""
    verdicts = [{**one, "ci": None} for one in two_runs["comparison"]["verdicts"]]
    said = headline.sentences({**two_runs, "comparison": {**two_runs["comparison"], "verdicts": verdicts}})
    assert said[-1] == "r1 and r2 share no latency that could be measured in both."


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (figures.milliseconds(0.416), "0.42"),
        (figures.milliseconds(41.25), "41.2"),
        (figures.milliseconds(1234.4), "1,234"),
        (figures.duration(0.416), "0.42 s"),
        (figures.duration(12.34), "12.3 s"),
        (figures.duration(185), "3 min 05 s"),
        (figures.duration(7500), "2 h 05 min"),
        (figures.share(0.9523), "95.2 %"),
        (figures.count(12345), "12,345"),
        (figures.ratio(None), "–"),
        (figures.interval([1.2, 1.4]), "1.200 to 1.400"),
        (figures.of_metric("cached_tokens", 4.0), "4"),
    ],
)
def test_figures(made: str, said: str) -> None:
    """As people read them."""
    assert made == said
