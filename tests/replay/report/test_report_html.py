"""The HTML report: complete, self-contained, and deaf to what captured text says."""

import copy
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from replay.report import html
from replay.report.facts import Facts

ELSEWHERE = (
    r"<script[^>]+\bsrc\s*=",
    r"<link\b",
    r"<(?:img|source|video|audio|iframe|embed|object)\b",
    r"@import",
    r"url\(",
    r"fetch\(|XMLHttpRequest|WebSocket|EventSource",
)
HOSTILE = "</script></style></title><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload='alert(3)"


class Elements(HTMLParser):
    """Every start tag with its attributes, and whether what is open is closed in order."""

    VOID = frozenset(("meta", "br", "hr", "input", "link"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(two_runs: Facts) -> str:
    return html.render(two_runs)


def words(page: str) -> str:
    return re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)


def test_it_refers_to_nothing_elsewhere(page: str) -> None:
    """One file: no script that runs, no style sheet, image, font or request."""
    for pattern in ELSEWHERE:
        assert not re.search(pattern, page, re.IGNORECASE), pattern
    assert [attributes.get("type") for tag, attributes in Elements(page).tags if tag == "script"] == ["application/json"]


def test_it_is_well_formed_and_knows_light_and_dark(page: str) -> None:
    """Every element is closed in order; charset, title, viewport, both colour schemes, print."""
    elements = Elements(page)
    assert elements.open == []
    assert '<meta charset="utf-8">' in page
    assert "<title>r2 against r1" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert 'name="viewport"' in page


def test_it_says_what_was_found(page: str) -> None:
    """Failures first, then the verdict; every figure's name; tables that need no script."""
    said = words(page)
    assert said.index("1 of 33 exchanges of r2 failed") < said.index("takes longer than r1 to its first token")
    assert page.index('id="failures"') < page.index('id="comparison"') < page.index('id="turns"')
    for name in (
        "ttft_ms",
        "Makespan",
        "reported",
        "predicted",
        "ideal",
        "worse",
        "no difference",
        "broken",
        "95 % interval",
        "vllm, block 16",
    ):
        assert name in said, name
    assert page.count("<tr") > 60


def test_every_turn_is_in_the_table(page: str, two_runs: Facts) -> None:
    """Each exchange has its row, with a header cell."""
    for subject in two_runs["subjects"]:
        for row in subject["rows"]:
            assert page.count(f'<th scope="row" class="mono keep">{row["exchange"]}</th>') == 1


def test_the_facts_are_embedded(page: str, two_runs: Facts) -> None:
    """The JSON in the page is the facts, to the last figure."""
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', page, re.DOTALL)
    assert found
    assert json.loads(found[1]) == json.loads(json.dumps(two_runs))


def poisoned(value: Any) -> Any:
    """The same facts with hostile text in every place that can hold captured text."""
    if isinstance(value, dict):
        return {key: HOSTILE if key in CAPTURED and isinstance(item, str) else poisoned(item) for key, item in value.items()}
    return [poisoned(item) for item in value] if isinstance(value, list | tuple) else value


CAPTURED = ("name", "agent", "model", "failure", "trace", "title", "session", "thread", "state", "kind_of", "cause", "refused", "id")


def test_hostile_text_stays_text(two_runs: Facts) -> None:
    """Markup in names, models, errors, paths and settings is shown, never obeyed."""
    facts = poisoned(copy.deepcopy(two_runs))
    for subject in facts["subjects"]:
        subject["provenance"] = [(HOSTILE, HOSTILE)]
        subject["models"] = [HOSTILE]
        subject["failures"] = {HOSTILE: 1}
    elements = Elements(html.render(facts))
    assert elements.open == []
    assert not [tag for tag, _ in elements.tags if tag == "img"]
    assert sum(tag == "script" for tag, _ in elements.tags) == 1
    assert not [name for _, attributes in elements.tags for name in attributes if name.startswith("on")]


def test_a_refused_comparison_is_told(two_runs: Facts) -> None:
    """Why two runs cannot be held against each other stands where the figures would."""
    facts = {**two_runs, "comparison": {"refused": "these runs cannot be compared: plan", "censored": None, "verdicts": []}}
    assert "No comparison: these runs cannot be compared: plan." in words(html.render(facts))


def test_a_long_table_is_folded_and_cut(two_runs: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a size rows are left to the CSV, and the page says so."""
    monkeypatch.setattr(html, "TABLE_ROWS", 5)
    monkeypatch.setattr(html, "OPEN_ROWS", 4)
    page = html.render(two_runs)
    assert "<details open>" not in page
    assert "The first 5" in page


def test_nothing_recorded(two_runs: Facts) -> None:
    """A subject without exchanges makes a page without charts, not an error."""
    empty = {**two_runs["subjects"][0], "rows": [], "failed": 0, "failures": {}}
    said = words(html.render({**two_runs, "subjects": [empty], "comparison": None}))
    assert "No exchange here belongs to a session." in said
    assert "No exchange here has a prompt that could be counted." in said


@pytest.mark.parametrize(("value", "said"), [(0, "0"), (250, "250 ms"), (2500, "2.5 s"), (240_000, "4 min")])
def test_ticks_of_time(value: float, said: str) -> None:
    """Short, with their unit."""
    assert html.axis_ms(value) == said


@pytest.mark.parametrize(("value", "said"), [(0, "0"), (250, "250"), (12_500, "12.5k"), (2_000_000, "2M")])
def test_ticks_of_counts(value: float, said: str) -> None:
    """Short."""
    assert html.axis_count(value) == said
