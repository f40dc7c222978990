"""Makes the ledger of what was asked for: recorded exchanges against all that was recorded, a run against itself; keeps its figures.

A cache serves everybody: what a recorded session could reuse, any earlier exchange of the trace may have left. A replay is its own world,
in the order in which it was really sent.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from replay.edits import SALT_FIELDS
from replay.reuse.ledger import VERSION, Ledger, Names, Row, account, totals
from replay.reuse.prompts import Prompts, fills_a_cache, with_replies
from replay.reuse.rules import Rule
from storage import derived, exchanges, reuse_rows, runs
from storage.records import ExchangeId, ExchangeRow, Run, RunId
from storage.reuse_rows import IdealRow
from storage.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the ledger is of: neither sessions nor runs means everything recorded."""

    sessions: Collection[int] = ()
    runs: Sequence[RunId] = ()
    rule: Rule | None = None
    generated: bool = False
    """Also say what could be reused if generated tokens stay in the cache."""


def ledger_of(trace: Trace, asked: Asked) -> Ledger:
    """The ledger of sessions and runs, in order of start."""
    rows: list[Row] = []
    if asked.sessions or not asked.runs:
        recorded = of_rows(trace, exchanges.listing(trace), asked)
        keep(trace, recorded)
        rows += [row for row in recorded.rows if not asked.sessions or row.session in asked.sessions]
    for run in asked.runs:
        rows += of_rows(trace, exchanges.listing(trace, runs=[run]), asked, salted=is_salted(runs.load(trace, run))).rows
    return Ledger(rows=tuple(rows), totals=totals(rows), rule=asked.rule)


def refresh(trace: Trace) -> None:
    """Counts what was recorded since the ledger was last made, so that listings show every session's ideal share."""
    if not reuse_rows.is_complete(trace, VERSION):
        ledger_of(trace, Asked())


def is_salted(run: Run) -> bool:
    """Whether a run kept the cache of each copy of each session apart by a salt in the body."""
    edits = run.settings.get("edits", ())
    named = any(edit.get("edit") == "set" and edit.get("field") in SALT_FIELDS for edit in edits)
    return named and run.settings.get("policy", {}).get("cache") == "cold"


def of_rows(trace: Trace, rows: Sequence[ExchangeRow], asked: Asked, *, salted: bool = False) -> Ledger:
    """The ledger of exchanges that one server was sent. `salted`: sessions and their copies shared no cache.

    Answers are read only where they matter: under rules that keep generated tokens, where it is asked for, and where a server reports more
    than earlier prompts can explain.
    """
    prompts = Prompts(trace)
    counted = prompts.counted([row for row in rows if fills_a_cache(row)], salted=salted)
    names = Names(prompts.ids_of, prompts.group_of)
    if not (asked.generated or asked.rule):
        plain = account(counted, names, None, generated=False)
        if not plain.totals.excess:
            return plain
    return account(with_replies(trace, counted), names, asked.rule, generated=True)


def keep(trace: Trace, ledger: Ledger) -> None:
    """Stores the figures of recorded turns where that can be done, so that listings need not count; only what is new or has changed."""
    known = reuse_rows.load(trace)
    figures = [
        IdealRow(
            exchange_id=ExchangeId(row.exchange),
            ledger_version=VERSION,
            prompt_tokens=row.prompt_tokens,
            ideal_tokens=row.ideal,
            broken_tokens=row.broken,
        )
        for row in ledger.rows
    ]
    changed = [figure for figure in figures if known.get(figure.exchange_id) != figure]
    derived.kept(trace, lambda: reuse_rows.save(trace, changed))
