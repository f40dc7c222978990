"""Asks the store for what a report is about: the exchanges of runs and sessions, their ledgers, the comparison of two runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from replay import compare
from replay.compare import Arm
from replay.report.facts import Compared, Facts, Subject, facts
from replay.report.plain import plain
from replay.reuse import survey
from replay.reuse.rules import Rule
from storage import exchanges, runs, sessions
from storage.errors import PlayheadError
from storage.records import ExchangeRow, Run, RunId
from storage.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the report is of: neither sessions nor runs means everything recorded."""

    sessions: Sequence[int] = ()
    runs: Sequence[RunId] = ()
    rule: Rule | None = None


def collect(trace: Trace, asked: Asked, *, made_ns: int) -> Facts:
    """The facts of a report. NotFoundError where there is no such run."""
    replays = [runs.load(trace, number) for number in dict.fromkeys(asked.runs)]
    rows = {run.id: exchanges.listing(trace, runs=[run.id]) for run in replays}
    subjects = [_of_run(trace, run, rows[run.id], asked.rule) for run in replays]
    if asked.sessions or not asked.runs:
        subjects.insert(0, _of_sessions(trace, asked))
    compared = _compared([Arm(run=run, rows=rows[run.id]) for run in replays])
    return plain(facts(subjects, trace=trace.location, made_ns=made_ns, compared=compared))  # type: ignore[no-any-return]


def _of_sessions(trace: Trace, asked: Asked) -> Subject:
    listed = exchanges.listing(trace, sessions=asked.sessions)
    return Subject(
        id=", ".join(f"s{number}" for number in asked.sessions[:4]) + (" …" if len(asked.sessions) > 4 else "") or "recording",
        kind="recording",
        rows=listed,
        ledger=survey.ledger_of(trace, survey.Asked(sessions=asked.sessions, rule=asked.rule)),
        sessions=sessions.listing(trace, ids=asked.sessions),
    )


def _of_run(trace: Trace, run: Run, rows: Sequence[ExchangeRow], rule: Rule | None) -> Subject:
    recorded = {row.session for row in rows if row.session is not None}
    sources = {row.id: row for row in exchanges.listing(trace, sessions=sorted(recorded))} if recorded else {}
    ledger = survey.ledger_of(trace, survey.Asked(runs=[run.id], rule=rule))
    return Subject(id=f"r{run.id}", kind="run", rows=rows, ledger=ledger, sources=sources, run=run)


def _compared(arms: Sequence[Arm]) -> Compared | None:
    """Two runs are held against each other, the second against the first; a refusal is told in the report."""
    if len(arms) != 2:
        return None
    try:
        return Compared(found=compare.compare(arms[0], arms[1]))
    except PlayheadError as refusal:
        return Compared(found=None, refused=str(refusal))
