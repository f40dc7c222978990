"""What `playhead sessions --explain` prints: why the exchanges of a session are one, and what speaks against it."""

from typing import TYPE_CHECKING, Any

import click

from cli import console, rows, session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.decisions import Decision
    from storage.records import SessionRow
    from tracer.identity.explaining import Explanation

_SHOWN_VALUE = 60
_SHOWN_EXCHANGES = 12


def explain(trace: Any, found: "Sequence[SessionRow]", *, as_json: bool) -> None:
    """Prints the explanation of each session."""
    from storage import decisions, places, signal_rows
    from tracer.identity import explaining

    elsewhere = signal_rows.sessions_showing(trace, explaining.ID_SIGNALS)
    made = decisions.load(trace)
    documents = []
    for row in found:
        placed = [
            explaining.Placed(exchange=number, source=source, confidence=confidence, signals=signals)
            for number, source, confidence, signals in places.evidence(trace, row.id)
        ]
        explanation = explaining.explain(row.id, placed, elsewhere)
        mine = [each for each in made if row.key in (each.session, each.into)]
        if as_json:
            documents.append(_document(row, explanation, mine))
        else:
            for line in _lines(row, explanation, mine):
                click.echo(line)
    if as_json:
        console.document(documents)


def _document(row: "SessionRow", explanation: "Explanation", made: "Sequence[Decision]") -> dict[str, Any]:
    return {
        "id": f"s{row.id}",
        "name": row.name or row.key,
        "key": row.key,
        "client": row.client,
        "forked_from": rows.numbered("s", row.forked_from),
        "evidence": [
            {"source": each.source, "confidence": each.confidence, "exchanges": _ids(each.exchanges)} for each in explanation.evidence
        ],
        "signals": [{"name": each.name, "value": each.value, "exchanges": _ids(each.exchanges)} for each in explanation.signals],
        "contradictions": [{"says": each.says, "exchanges": _ids(each.exchanges)} for each in explanation.contradictions],
        "decisions": [session.keys(each) for each in made],
    }


def _ids(numbers: "Sequence[int]") -> list[str]:
    return [f"e{number}" for number in numbers]


def _lines(row: "SessionRow", explanation: "Explanation", made: "Sequence[Decision]") -> "Iterator[str]":
    from tracer.identity.explaining import WORDS

    yield f"s{row.id}  {console.plain(row.name or row.key)}  {console.plain(row.client or 'unknown client')}"
    if row.forked_from is not None:
        yield f"    forked from s{row.forked_from}"
    yield "  why"
    for each in explanation.evidence:
        yield f"    {each.confidence:.2f}  {WORDS.get(each.source, each.source)} ({each.source}): {_some(each.exchanges)}"
    for decision in made:
        yield f"    you decided: {session.words(decision)}"
    yield "  signals" if explanation.signals else "  no signal names the session"
    for shown in explanation.signals:
        yield f"    {shown.name} = {console.shortened(console.plain(shown.value), _SHOWN_VALUE)}: {_some(shown.exchanges)}"
    yield "  against" if explanation.contradictions else "  nothing speaks against it"
    for doubt in explanation.contradictions:
        yield f"    {console.plain(doubt.says)}: {_some(doubt.exchanges)}"


def _some(numbers: "Sequence[int]") -> str:
    """Exchanges in words; neighbours as a range."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = [f"e{first}" if first == last else f"e{first}-e{last}" for first, last in ranges[:_SHOWN_EXCHANGES]]
    more = len(ranges) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
