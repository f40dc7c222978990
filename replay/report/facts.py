"""What a report says, as one dict of plain values: subjects with their turns, latencies and reuse; a comparison; provenance; definitions.

Pure: rows, runs, ledgers and a comparison in, facts out. What is unknown is None. It does not know the store, nor any format.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from replay import metrics, served
from replay.compare import Comparison, Verdict
from replay.metrics import Measured
from replay.reuse import words
from replay.reuse.ledger import Ledger
from storage.records import ExchangeId, ExchangeRow, Run, SessionRow, State

type Facts = dict[str, Any]

LATENCIES = ("ttft_ms", "ttft_ready_ms", "ttfo_ms", "itl_ms", "e2e_ms", "close_ms", "lag_ms", "client_delay_ms")
"""The metrics of the latency table, in its order."""

NEVER_TURNS = ("other", "count_tokens")
"""Kinds that are in the counts and the table, and in no latency: nothing is generated."""

_UNENDED = (State.IN_FLIGHT, State.INTERRUPTED)
"""Neither failed nor completed: nobody knows what would have come."""

DEFINITIONS = (
    ("ideal", "tokens", "Leading prompt tokens shared with any earlier request whose prefill had finished: a cache without limits."),
    ("predicted", "tokens", "The same under the target's own rules: whole blocks, the last token always computed, capacity, time to live."),
    (
        "reported",
        "tokens",
        "Cached prompt tokens as the server said it. Not reported is unknown, never 0; coverage says for how many turns.",
    ),
    ("broken", "tokens", "Tokens of the thread's previous prompt that this turn no longer shares: what the request itself threw away."),
    ("lost", "tokens", "Predicted (without rules: ideal) minus reported; where nothing is reported, ideal minus predicted."),
    ("excess", "tokens", "Reported beyond anything possible: an error signal, never clamped."),
    ("makespan", "s", "From the first start (of a replay: the first moment due) to the last close."),
)
"""What is not a metric of one exchange (those are in `replay.metrics`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing a report is about: a run, or recorded sessions. `rows` in order of start."""

    id: str
    kind: str
    """`run` or `recording`."""
    rows: Sequence[ExchangeRow]
    ledger: Ledger
    sources: Mapping[ExchangeId, ExchangeRow] = field(default_factory=dict)
    run: Run | None = None
    sessions: Sequence[SessionRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A comparison, or why there is none."""

    found: Comparison | None
    refused: str | None = None


def facts(subjects: Sequence[Subject], *, trace: str, made_ns: int, compared: Compared | None = None) -> Facts:
    """All that a report says. `made_ns`: Unix-epoch ns of the making."""
    return {
        "title": _title(subjects),
        "made_at": _moment(made_ns),
        "trace": trace,
        "subjects": [_subject(subject) for subject in subjects],
        "comparison": None if compared is None else _compared(compared),
        "definitions": [{"name": name, "unit": unit, "definition": definition} for name, unit, definition in _definitions()],
    }


def _title(subjects: Sequence[Subject]) -> str:
    runs = [subject.id for subject in subjects if subject.kind == "run"]
    if len(runs) == 2 and len(subjects) == 2:
        return f"{runs[1]} against {runs[0]}"
    names = [subject.id for subject in subjects]
    return names[0] if len(names) == 1 else f"{len(names)} subjects"


def _moment(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _definitions() -> list[tuple[str, str, str]]:
    return [(metric.name, metric.unit, metric.definition) for metric in metrics.METRICS] + list(DEFINITIONS)


# ---- one subject -----------------------------------------------------------------------------------------------------


def _subject(subject: Subject) -> Facts:
    turns = [Measured(row, subject.sources.get(row.source_exchange) if row.source_exchange else None) for row in subject.rows]
    measured = [turn for turn in turns if turn.row.kind not in NEVER_TURNS]
    failed = Counter(reason for row in subject.rows if row.state not in _UNENDED and (reason := metrics.failure_of(row)) is not None)
    start_ns = min((row.started_ns for row in subject.rows), default=0)
    return {
        "id": subject.id,
        "kind": subject.kind,
        "name": _name(subject),
        "started_at": _moment(start_ns) if subject.rows else None,
        "exchanges": len(subject.rows),
        "turns": sum(row.kind == "turn" for row in subject.rows),
        "sessions": len({(row.session, row.copy) for row in subject.rows if row.session is not None}),
        "threads": len({(row.thread, row.copy) for row in subject.rows if row.thread is not None}),
        "models": sorted({row.model for row in subject.rows if row.model}),
        "failed": sum(failed.values()),
        "failures": dict(failed.most_common()),
        "interrupted": sum(row.state == State.INTERRUPTED for row in subject.rows),
        "makespan_s": metrics.makespan_s(subject.rows),
        "prompt_tokens": metrics.total(row.usage.prompt for row in subject.rows),
        "cached_tokens": metrics.total(row.usage.cached for row in subject.rows),
        "output_tokens": metrics.total(row.usage.output for row in subject.rows),
        "latency": [_latency(name, measured) for name in LATENCIES],
        "reuse": {
            "totals": words.totals_document(subject.ledger.totals),
            "rules": None if subject.ledger.rule is None else words.rule_name(subject.ledger.rule),
            "means": [*words.sentences(subject.ledger), *_counted(subject.run)],
        },
        "engine": None if subject.run is None else (subject.run.summary or {}).get("engine"),
        "rows": _rows(turns, subject.ledger, start_ns),
        "provenance": _provenance(subject),
    }


def _name(subject: Subject) -> str:
    if subject.run is not None:
        return subject.run.target
    named = [session.name or session.client or f"s{session.id}" for session in subject.sessions]
    return named[0] if len(named) == 1 else f"{len(named)} recorded sessions"


def _counted(run: Run | None) -> list[str]:
    """What the engine's own counters say of a run, in one sentence."""
    engine = (run.summary or {}).get("engine") if run is not None else None
    return [] if engine is None else [served.sentence(engine)]


def _latency(name: str, turns: Sequence[Measured]) -> Facts:
    """`of`: the exchanges that could have had a figure; `n` those that had one."""
    metric = metrics.named(name)
    found = metrics.spread(metric, turns)
    return {
        "metric": name,
        "unit": metric.unit,
        "n": found.n,
        "of": len(turns),
        "p50": found.p50,
        "p90": found.p90,
        "p99": found.p99,
        "too_small": list(found.too_small),
    }


def _rows(turns: Sequence[Measured], ledger: Ledger, start_ns: int) -> list[Facts]:
    accounted = {row.exchange: words.row_document(row) for row in ledger.rows}
    return [_turn(turn, accounted.get(turn.row.id, {}), start_ns) for turn in turns]


def _turn(turn: Measured, reuse: Facts, start_ns: int) -> Facts:
    row = turn.row
    figures = {metric.name: metrics.value(metric, turn) for metric in metrics.METRICS}
    return {
        "exchange": f"e{row.id}",
        "session": None if row.session is None else f"s{row.session}",
        "thread": None if row.thread is None else f"t{row.thread}",
        "agent": row.agent,
        "turn": row.number,
        "copy": row.copy,
        "kind": row.kind,
        "dialect": row.dialect,
        "model": row.model,
        "status": row.status,
        "state": row.state,
        "failure": None if row.state == State.IN_FLIGHT else metrics.failure_of(row),
        "start_ms": (row.started_ns - start_ns) / 1e6,
        **figures,
        "last_ms": None if row.ended_ns is None else row.ended_ns / 1e6,
        "first_content_ms": None if row.marks.first_content_ns is None else row.marks.first_content_ns / 1e6,
        "output_tokens": row.usage.output,
        "prompt_tokens": reuse.get("prompt_tokens", row.usage.prompt),
        **{name: reuse.get(name) for name in ("ideal", "predicted", "reported", "broken", "lost", "excess", "cause", "at", "estimated")},
    }


def _provenance(subject: Subject) -> list[tuple[str, str]]:
    """(what, how it was) of one subject, in reading order."""
    run = subject.run
    if run is None:
        clients = sorted({session.client for session in subject.sessions if session.client})
        keys = [f"s{session.id} ({session.key})" for session in subject.sessions[:6]]
        more = len(subject.sessions) - len(keys)
        return [
            ("Recorded from", ", ".join(clients) or "unknown clients"),
            ("Sessions", ", ".join(keys) + (f" and {more} more" if more > 0 else "")),
        ]
    target = [("Target", run.target), ("Target found", _found(run.settings.get("target_found")))]
    return [*target, ("Began", _moment(run.started_ns)), *_settings(run.settings), *_versions(run.settings)]


def _found(found: Mapping[str, Any] | None) -> str:
    """What the target said of itself before the run."""
    if found is None:
        return "not asked"
    engine = " ".join(found[name] for name in ("engine", "version") if found.get(name))
    said = [engine] if engine else []
    if found.get("server"):
        said.append(f"server {found['server']}")
    said += [model["id"] + (f" ({model['max_model_len']} tokens)" if model.get("max_model_len") else "") for model in found["models"] or ()]
    said += [f"{name} {value}" for name, value in found.get("flags", {}).items()]
    return ", ".join(said) or "it said nothing of itself"


def _settings(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    plan, policy = settings.get("plan", {}), settings.get("policy", {})
    said = [("Played", f"{plan.get('sessions')} sessions, {plan.get('turns')} turns (plan {str(plan.get('sha256'))[:12]})")] if plan else []
    if plan.get("left_out"):
        said.append(("Left out", ", ".join(f"{number} {reason}" for reason, number in plan["left_out"].items())))
    if policy:
        said.append(("Policy", ", ".join(f"{name} {value}" for name, value in policy.items())))
        said.append(("Cache at start", str(policy.get("cache", "as-found"))))
    if "edits" in settings:
        said.append(("Declared edits", "; ".join(map(_edit, settings["edits"])) or "none"))
    return said


def _edit(edit: Mapping[str, Any]) -> str:
    name, *details = edit.values()
    return f"{name}: {' '.join(map(str, details))}" if details else str(name)


def _versions(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = [f"{name} {settings[name]}" for name in ("playhead", "python", "platform") if settings.get(name)]
    return [("Instrument", ", ".join(parts))] if parts else []


# ---- the comparison --------------------------------------------------------------------------------------------------


def _compared(compared: Compared) -> Facts:
    found = compared.found
    return {
        "refused": compared.refused,
        "censored": None if found is None else found.censored,
        "verdicts": [] if found is None else [_verdict(verdict) for verdict in found.verdicts],
    }


def _verdict(verdict: Verdict) -> Facts:
    estimate = verdict.estimate
    return {
        "metric": verdict.metric,
        "a": verdict.a,
        "b": verdict.b,
        "ratio": estimate.ratio,
        "ci": None if estimate.low is None or estimate.high is None else [estimate.low, estimate.high],
        "verdict": verdict.verdict,
        "n_sessions": verdict.n_sessions,
        "n_turns": verdict.n_turns,
        "weak": verdict.weak,
    }
