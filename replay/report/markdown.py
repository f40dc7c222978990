"""The report as Markdown: for a pull request or an issue. Captured text cannot break a table or become markup."""

import re
from collections.abc import Sequence

from replay.report import figures, headline
from replay.report.facts import Facts

TURNS = 200
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")


def render(facts: Facts) -> str:
    """The whole document."""
    parts = [f"# {safe(facts['title'])}", *map(safe, headline.sentences(facts)), f"{facts['made_at']}, trace {safe(facts['trace'])}"]
    if facts["comparison"] and facts["comparison"]["verdicts"]:
        parts += ["## Comparison", _comparison(facts)]
    for subject in facts["subjects"]:
        parts += _subject(subject)
    parts += ["## Definitions", _table(["figure", "unit", "what it is"], [_definition(one) for one in facts["definitions"]])]
    return "\n\n".join(parts) + "\n"


def safe(text: object) -> str:
    """Text as one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], left: int = 1) -> str:
    """The first `left` columns are text, the others figures."""
    marks = ["---" if n < left else "---:" for n in range(len(heads))]
    lines = [heads, marks, *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _definition(one: Facts) -> list[object]:
    return [safe(one["name"]), one["unit"], safe(one["definition"])]


def _comparison(facts: Facts) -> str:
    a, b = (subject["id"] for subject in facts["subjects"] if subject["kind"] == "run")
    rows = [
        [
            safe(one["metric"]),
            one["verdict"] + (" *" if one["weak"] else "").replace("*", "\\*"),
            figures.of_metric(one["metric"], one["a"]),
            figures.of_metric(one["metric"], one["b"]),
            figures.ratio(one["ratio"]),
            figures.interval(one["ci"]),
            figures.count(one["n_turns"]),
        ]
        for one in facts["comparison"]["verdicts"]
        if one["n_turns"]
    ]
    return _table(["metric", "verdict", a, b, "ratio", "95 % interval", "n"], rows, left=2)


def _subject(subject: Facts) -> list[str]:
    totals = subject["reuse"]["totals"]
    reuse = [figures.count(totals[name]) for name in ("prompt_tokens", "ideal", "predicted", "reported", "broken", "lost", "excess")]
    latency = [
        [safe(one["metric"]), *(figures.milliseconds(one[q]) for q in ("p50", "p90", "p99")), one["n"], one["of"]]
        for one in subject["latency"]
        if one["n"]
    ]
    return [
        f"## {safe(subject['id'])}: {safe(subject['name'])}",
        f"{subject['turns']} turns, {subject['failed']} failed, makespan {figures.duration(subject['makespan_s'])}",
        *map(safe, subject["reuse"]["means"]),
        _table(["prompt", "ideal", "predicted", "reported", "broken", "lost", "excess"], [reuse], left=0),
        _table(["ms", "p50", "p90", "p99", "n", "of"], latency),
        *_turns(subject),
        "\n".join(f"- {safe(what)}: {safe(how)}" for what, how in subject["provenance"]),
    ]


def _turns(subject: Facts) -> list[str]:
    names = ("prompt_tokens", "ideal", "predicted", "reported", "broken", "lost")
    rows = [
        [
            row["exchange"],
            f"{row['session'] or figures.NONE} {row['thread'] or ''}".strip(),
            safe(row["failure"] or row["cause"] or ""),
            figures.count(row["turn"]),
            figures.milliseconds(row["ttft_ms"]),
            figures.milliseconds(row["e2e_ms"]),
            *(figures.count(row[name]) for name in names),
        ]
        for row in subject["rows"][:TURNS]
    ]
    heads = ["id", "thread", "cause or failure", "turn", "TTFT", "E2E", "prompt", "ideal", "predicted", "reported", "broken", "lost"]
    more = len(subject["rows"]) - len(rows)
    return [_table(heads, rows, left=3), *([f"The first {TURNS}; {more} more are in the CSV."] if more > 0 else [])]
