"""The report as plain text of 80 columns. Captured text is stripped of what a terminal would obey."""

import textwrap
from collections.abc import Sequence

from replay.report import figures, headline
from replay.report.facts import Facts

WIDTH = 80
TURNS = 40


def render(facts: Facts) -> str:
    """The whole report."""
    lines = [f"PLAYHEAD REPORT  {plain(facts['title'])}", f"{facts['made_at']}  {shortened(facts['trace'], 54)}", ""]
    for sentence in headline.sentences(facts):
        lines += wrapped(sentence)
    if facts["comparison"] and facts["comparison"]["verdicts"]:
        lines += ["", *_comparison(facts)]
    for subject in facts["subjects"]:
        lines += ["", *_subject(subject)]
    return "\n".join(lines) + "\n"


def plain(text: object) -> str:
    """Text on one line, without control, format and direction characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(str(text).split()))


def shortened(text: object, width: int) -> str:
    """Text of at most so many characters."""
    said = plain(text)
    return said if len(said) <= width else said[: width - 1] + "…"


def wrapped(text: str) -> list[str]:
    """A sentence in lines that fit."""
    return textwrap.wrap(plain(text), WIDTH)


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int]) -> list[str]:
    """Rows as lines, columns by the widest cell; those named in `left` are text."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    cells = ([row[n].ljust(widths[n]) if n in left else row[n].rjust(widths[n]) for n in range(len(row))] for row in rows)
    return ["  ".join(line).rstrip()[:WIDTH] for line in cells]


def _comparison(facts: Facts) -> list[str]:
    a, b = (subject["id"] for subject in facts["subjects"] if subject["kind"] == "run")
    verdicts = [one for one in facts["comparison"]["verdicts"] if one["n_turns"]]
    rows = [["metric", a, b, "ratio", "95 % interval", "verdict", "n"]]
    rows += [
        [
            one["metric"],
            figures.of_metric(one["metric"], one["a"]),
            figures.of_metric(one["metric"], one["b"]),
            figures.ratio(one["ratio"]),
            figures.interval(one["ci"]),
            one["verdict"] + (" *" if one["weak"] else ""),
            figures.count(one["n_turns"]),
        ]
        for one in verdicts
    ]
    weak = ["* a weak interval: fewer than 20 sessions, or too few turns"] if any(one["weak"] for one in verdicts) else []
    return [f"COMPARISON  {b} against {a}", *aligned(rows, (0, 5)), *weak]


def _subject(subject: Facts) -> list[str]:
    head = f"{subject['id'].upper()}  {shortened(subject['name'], 60)}"
    counts = f"{subject['turns']} turns in {subject['sessions']} sessions, {subject['failed']} failed"
    if subject["interrupted"]:
        counts += f", {subject['interrupted']} interrupted"
    lines = [shortened(head, WIDTH), f"{counts}, makespan {figures.duration(subject['makespan_s'])}", *_failures(subject)]
    for sentence in subject["reuse"]["means"]:
        lines += wrapped(sentence)
    return [*lines, "", *_latency(subject), "", *_reuse(subject), "", *_turns(subject)]


def _failures(subject: Facts) -> list[str]:
    return [f"  {number} × {shortened(reason, 66)}" for reason, number in subject["failures"].items()]


def _latency(subject: Facts) -> list[str]:
    rows = [["ms", "p50", "p90", "p99", "n", "of"]]
    for one in subject["latency"]:
        if one["n"]:
            quantiles = [figures.milliseconds(one[q]) + ("*" if q in one["too_small"] else " ") for q in ("p50", "p90", "p99")]
            rows.append([one["metric"], *quantiles, figures.count(one["n"]), figures.count(one["of"])])
    return aligned(rows, (0,))


def _reuse(subject: Facts) -> list[str]:
    totals = subject["reuse"]["totals"]
    names = ("prompt_tokens", "ideal", "predicted", "reported", "broken", "lost", "excess")
    shares = ["", *(figures.share(totals[f"{name}_share"]) for name in names[1:4]), "", "", ""]
    rows = [["tokens", *names], ["sum", *(figures.count(totals[name]) for name in names)], ["share", *shares]]
    rows[0][1] = "prompt"
    return aligned(rows, (0,))


def _turns(subject: Facts) -> list[str]:
    rows = [["id", "turn", "TTFT", "E2E", "prompt", "ideal", "reported", "broken", "cause or failure"]]
    rows += [
        [
            row["exchange"],
            figures.count(row["turn"]),
            figures.milliseconds(row["ttft_ms"]),
            figures.milliseconds(row["e2e_ms"]),
            *(figures.count(row[name]) for name in ("prompt_tokens", "ideal", "reported", "broken")),
            shortened(row["failure"] or row["cause"] or "", 24),
        ]
        for row in subject["rows"][:TURNS]
    ]
    more = len(subject["rows"]) - TURNS
    return [*aligned(rows, (0, 8)), *([f"… and {more:,} more: --format csv has all"] if more > 0 else [])]
