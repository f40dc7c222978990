"""The ledger in words and as JSON: what its totals mean in a sentence or two, and the keys under which its figures are known. Pure."""

from typing import Any

from replay.reuse.ledger import ESTIMATE_BAND, Ledger, Row, Totals
from replay.reuse.rules import Rule
from tracer.tokens import NAME as TOKENIZER


def sentences(ledger: Ledger) -> list[str]:
    """What the totals say, most important first; an impossible figure before all."""
    totals = ledger.totals
    if not totals.turns:
        return ["No prompts were answered here: there is nothing to account for."]
    said = [_excess(ledger)] if totals.excess else []
    said.append(_ideal(totals) + _predicted(ledger) + _reported(totals) + ".")
    if totals.broken:
        said.append(f"The prompts themselves threw away {totals.broken:,} tokens that the turn before had.")
    if totals.estimated_turns:
        said.append(_estimated(totals))
    return said


def _ideal(totals: Totals) -> str:
    if totals.ideal_share is None:
        return f"Of {totals.prompt_tokens or 0:,} prompt tokens nobody can say how many could be reused: the bodies were not understood"
    whole = f"Of {totals.prompt_tokens:,} prompt tokens in {totals.turns:,} turns"
    return f"{whole}, {_percent(totals.ideal_share)} could be reused by a cache without limits"


def _predicted(ledger: Ledger) -> str:
    if ledger.rule is None or ledger.totals.predicted_share is None:
        return ""
    return f", {_percent(ledger.totals.predicted_share)} under the rules of {rule_name(ledger.rule)}"


def _reported(totals: Totals) -> str:
    if totals.reported_share is None:
        return "; the server reported nothing"
    coverage = totals.reported_coverage or 0
    where = "" if coverage == 1 else f" in the {_percent(coverage)} of turns where it said so"
    return f"; the server reported {_percent(totals.reported_share)}{where}"


def _excess(ledger: Ledger) -> str:
    totals = ledger.totals
    tokens = f"{totals.excess:,} more cached tokens were reported than these prompts can explain"
    if totals.estimated_turns and (totals.excess or 0) <= ESTIMATE_BAND * (totals.prompt_tokens or 0):
        return f"Note: {tokens}, within what an estimate can be off."
    return f"ERROR: {tokens}: the cache was warm before, other traffic shared it, or the server counts otherwise."


def _estimated(totals: Totals) -> str:
    some = "All" if totals.estimated_turns == totals.turns else f"{totals.estimated_turns:,} of {totals.turns:,}"
    return f"{some} turns were divided by {TOKENIZER} and scaled to the server's usage: shares hold within a point."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def rule_name(rule: Rule) -> str:
    """The rules with their limits: `vllm, block 16, capacity 4,096, TTL 300 s`."""
    limits = rule.limits
    parts = [rule.engine.NAME, f"block {limits.block_tokens}"]
    if limits.capacity_tokens is not None:
        parts.append(f"capacity {limits.capacity_tokens:,}")
    if limits.ttl_ns is not None:
        parts.append(f"TTL {limits.ttl_ns / 1e9:g} s")
    return ", ".join(parts)


def document(ledger: Ledger) -> dict[str, Any]:
    """The ledger as `reuse --json` prints it."""
    return {
        "totals": totals_document(ledger.totals),
        "rules": None if ledger.rule is None else rule_name(ledger.rule),
        "tokenizer": TOKENIZER,
        "means": sentences(ledger),
        "turns": [row_document(row) for row in ledger.rows],
    }


def totals_document(totals: Totals) -> dict[str, Any]:
    """The sums by name."""
    return {name: getattr(totals, name) for name in Totals.__dataclass_fields__}


def row_document(row: Row) -> dict[str, Any]:
    """One turn by name, ids as the command line writes them."""
    return {
        "exchange": f"e{row.exchange}",
        "session": None if row.session is None else f"s{row.session}",
        "thread": None if row.thread is None else f"t{row.thread}",
        "turn": row.turn,
        "copy": row.copy,
        "kind": row.kind,
        "model": row.model,
        "prompt_tokens": row.prompt_tokens,
        "ideal": row.ideal,
        "ideal_with_generated": row.ideal_with_generated,
        "predicted": row.predicted,
        "reported": row.reported,
        "broken": row.broken,
        "lost": row.lost,
        "excess": row.excess,
        "cause": row.cause,
        "at": None if row.at is None else {"path": row.at.path, "byte": row.at.byte, "token": row.at.token},
        "estimated": row.estimated,
    }
