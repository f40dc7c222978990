"""The report as one self-contained HTML file: no script runs, nothing is fetched, captured text is escaped by jinja2."""

import json
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from replay.compare import MARGIN
from replay.report import charts, figures, headline, waterfall
from replay.report.facts import Facts

TABLE_ROWS = 5000
"""Rows of the table of turns; the CSV has all of them."""
TONES = ("one", "two", "three")
"""Colours of the subjects, in their order."""
OPEN_ROWS = 60
"""A table longer than this is folded."""


def render(facts: Facts) -> str:
    """The whole document."""
    subjects = [{**_drawn(subject), "tone": TONES[min(n, len(TONES) - 1)]} for n, subject in enumerate(facts["subjects"])]
    length_ms = max((waterfall.longest(subject["groups"]) for subject in subjects), default=1.0)
    for subject in subjects:
        subject["waterfalls"] = [waterfall.waterfall(group, length_ms) for group in subject["groups"][: waterfall.SESSIONS]]
    compared = facts["comparison"]
    return _template().render(
        facts=facts,
        subjects=subjects,
        said=headline.sentences(facts),
        scatter=charts.scatter(facts["subjects"]),
        forest=charts.forest(compared["verdicts"], MARGIN) if compared else None,
        margin=MARGIN,
        embedded=_embedded(facts),
        table_rows=TABLE_ROWS,
        open_rows=OPEN_ROWS,
        sessions_drawn=waterfall.SESSIONS,
    )


def _drawn(subject: Facts) -> Facts:
    return {**subject, "groups": waterfall.sessions(subject["rows"]), "reuse_chart": charts.reuse(subject["rows"])}


def _embedded(facts: Facts) -> Markup:
    """The facts as JSON inside a script element that no browser runs: nothing in it can end the element or begin a comment."""
    text = json.dumps(facts, separators=(",", ":"), ensure_ascii=True)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))  # noqa: S704 - escaped in this line


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("replay.report", "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "count": figures.count,
        "share": figures.share,
        "ms": figures.milliseconds,
        "duration": figures.duration,
        "ratio": figures.ratio,
        "interval": figures.interval,
        "of_metric_of": lambda value, name: figures.of_metric(name, value),
        "axis_ms": axis_ms,
        "axis_count": axis_count,
        "whole": lambda text: text.replace(" %", "\u00a0%"),
        "words": lambda name: name.replace("_", " "),
    }
    environment.filters.update(filters)
    return environment.get_template("report.html.j2")


def axis_ms(value_ms: float) -> str:
    """A tick of a time axis, short: `0`, `250 ms`, `2.5 s`, `4 min`."""
    if value_ms == 0:
        return "0"
    if value_ms < 1000:
        return f"{value_ms:g} ms"
    return f"{value_ms / 1000:g} s" if value_ms < 120_000 else f"{value_ms / 60_000:.3g} min"


def axis_count(value: float) -> str:
    """A tick of an axis of tokens, short: `0`, `250`, `12.5k`, `1.2M`."""
    if value < 1000:
        return f"{value:g}"
    return f"{value / 1000:g}k" if value < 1_000_000 else f"{value / 1_000_000:g}M"
