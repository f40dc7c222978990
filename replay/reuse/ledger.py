"""The ledger: of each turn what could be reused (ideal), what rules allow (predicted), what the server said (reported), why they differ.

Pure: counted prompts in, rows and totals out. What is not known is None, never 0; a figure that cannot be (more reported than possible) is
kept as `excess`. It does not know the store, nor how rows are shown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from replay.reuse import ideal as ideals
from replay.reuse.causes import Place, Turned, broken_cause, broken_place, changed, lost_cause
from replay.reuse.ideal import Prompt
from replay.reuse.prefix_tree import IdsOf, shared_by
from replay.reuse.prompts import Counted
from replay.reuse.rules import Rule

VERSION = 2
"""Of the figures: rows kept by another version are counted again."""

ESTIMATE_BAND = 0.01
"""A share that rests on another tokenizer than the server's is right within this (docs/reference/reuse.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One turn. All figures are tokens as the server counts them."""

    exchange: int
    session: int | None
    thread: int | None
    turn: int | None
    copy: int | None
    kind: str
    model: str | None
    prompt_tokens: int | None
    ideal: int | None
    ideal_with_generated: int | None
    """None: not asked for."""
    predicted: int | None
    reported: int | None
    broken: int | None
    lost: int | None
    excess: int | None
    cause: str | None
    at: Place | None
    estimated: bool
    """Whether the prompt was counted with another tokenizer than the server's: then shares hold within a band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the turns for which a figure is known; None where it is known for none. A share is of the same turns' prompt tokens."""

    turns: int
    prompt_tokens: int | None
    ideal: int | None
    ideal_with_generated: int | None
    predicted: int | None
    reported: int | None
    reported_coverage: float | None
    """Share of the turns for which the server said it."""
    reported_coverage_tokens: float | None
    broken: int | None
    lost: int | None
    excess: int | None
    ideal_share: float | None
    predicted_share: float | None
    reported_share: float | None
    ideal_share_median: float | None
    """Of the sessions: one long session does not speak for all."""
    reported_share_median: float | None
    estimated_turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Rows in order of start."""

    rows: tuple[Row, ...]
    totals: Totals
    rule: Rule | None


@dataclass(frozen=True, slots=True)
class Names:
    """What a path's names stand for."""

    ids_of: IdsOf
    group_of: Callable[[int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The three figures of one prompt, and the most that is possible at all."""

    ideal: int
    generated: int | None
    predicted: int | None
    possible: int | None


def account(counted: Sequence[Counted], names: Names, rule: Rule | None, *, generated: bool) -> Ledger:
    """The ledger of what one server was sent, in order of start. `generated`: prompts carry their replies, and they count as reusable."""
    prompts = [one.prompt for one in counted if one.prompt is not None]
    found = _figures(prompts, names.ids_of, rule, generated=generated)
    last: dict[tuple[object, ...], Prompt] = {}
    rows = []
    for one in counted:
        thread = (one.row.thread, one.row.kind, one.row.copy)
        before = last.get(thread) if one.row.thread is not None else None
        rows.append(_row(one, before, found.get(one.row.id), (names, rule)))
        if one.prompt is not None:
            last[thread] = one.prompt
    return Ledger(rows=tuple(rows), totals=totals(rows), rule=rule)


def _figures(prompts: Sequence[Prompt], ids_of: IdsOf, rule: Rule | None, *, generated: bool) -> dict[int, _Found]:
    plain = ideals.ideal(prompts, ids_of)
    more: Iterable[int | None] = ideals.ideal_with_generated(prompts, ids_of) if generated else (None for _ in prompts)
    allowed: Iterable[int | None] = rule.engine.predict(prompts, ids_of, rule.limits) if rule is not None else (None for _ in prompts)
    most: Iterable[int | None] = ideals.possible(prompts, ids_of) if generated else (None for _ in prompts)
    figures = zip(prompts, plain, more, allowed, most, strict=True)
    return {
        prompt.exchange: _Found(ideal=best, generated=with_reply, predicted=under, possible=bound)
        for prompt, best, with_reply, under, bound in figures
    }


def _row(one: Counted, before: Prompt | None, found: _Found | None, asked: tuple[Names, Rule | None]) -> Row:
    names, rule = asked
    row, prompt = one.row, one.prompt
    reported = row.usage.cached
    turned = None if prompt is None else _turned(before, prompt, names, row.dialect)
    ideal, predicted = (None, None) if found is None else (found.ideal, found.predicted)
    lost = _lost(ideal, predicted, reported)
    cause, at = _cause(turned, lost, rule, (one, found))
    return Row(
        exchange=row.id,
        session=row.session,
        thread=row.thread,
        turn=row.number,
        copy=row.copy,
        kind=row.kind,
        model=row.model,
        prompt_tokens=row.usage.prompt if prompt is None else prompt.tokens,
        ideal=ideal,
        ideal_with_generated=None if found is None else found.generated,
        predicted=predicted,
        reported=reported,
        broken=None if turned is None else turned.broken,
        lost=lost,
        excess=_excess(found, reported),
        cause=cause,
        at=at,
        estimated=is_estimated(one),
    )


def is_estimated(one: Counted) -> bool:
    """Whether the server's own count differs from ours, or is not known."""
    return one.row.usage.prompt is None or one.prompt is None or one.prompt.tokens != one.prompt.estimate


def _turned(before: Prompt | None, now: Prompt, names: Names, dialect: str | None) -> Turned:
    """What this prompt keeps of the thread's previous one."""
    if before is None:
        return Turned(before=None, now=now, shared=0, broken=0)
    same = before.space == now.space
    shared = shared_by(before.path, now.path, names.ids_of) if same else 0
    group, place = changed(before, now, names.group_of, dialect) if same else (None, 0)
    broken = before.tokens - ideals.scaled(shared, before)
    return Turned(before=before, now=now, shared=shared, broken=broken, group=group, dialect=dialect, place=place)


def _lost(ideal: int | None, predicted: int | None, reported: int | None) -> int | None:
    """What the target did not reuse of what it could; where it says nothing, what its rules cost."""
    if reported is not None:
        could = ideal if predicted is None else predicted
        return None if could is None else max(0, could - reported)
    return None if ideal is None or predicted is None else max(0, ideal - predicted)


def _excess(found: _Found | None, reported: int | None) -> int | None:
    """Reported beyond anything possible. More than 0: the server was warm before, or counts otherwise, or says what is not so."""
    if found is None or reported is None:
        return None
    return max(0, reported - max(found.ideal, found.generated or 0, found.predicted or 0, found.possible or 0))


def _cause(
    turned: Turned | None, lost: int | None, rule: Rule | None, of: tuple[Counted, _Found | None]
) -> tuple[str | None, Place | None]:
    """The cause of the larger of broken and lost, and the place where it is known."""
    one, found = of
    if turned is None or found is None or one.prompt is None:
        return None, None
    if turned.broken and turned.broken >= (lost or 0):
        return broken_cause(turned), broken_place(turned)
    band = ESTIMATE_BAND * one.prompt.tokens if is_estimated(one) else 0
    return lost_cause(lost, found.ideal, one, band=band, limits=None if rule is None else rule.limits), None


def known_sum(figures: Iterable[int | None]) -> int | None:
    """The sum of what is known; None where nothing is."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def share_of(rows: Iterable[Row], figure: Callable[[Row], int | None]) -> float | None:
    """A figure's share of the prompt tokens of the turns for which both are known."""
    known = [(part, row.prompt_tokens) for row in rows if (part := figure(row)) is not None and row.prompt_tokens is not None]
    whole = sum(tokens for _, tokens in known)
    return sum(part for part, _ in known) / whole if whole else None


def totals(rows: Sequence[Row]) -> Totals:
    """The sums of the rows, with what they cover."""
    said = [row for row in rows if row.reported is not None]
    tokens, said_tokens = (known_sum(row.prompt_tokens for row in some) for some in (rows, said))
    return Totals(
        turns=len(rows),
        prompt_tokens=tokens,
        ideal=known_sum(row.ideal for row in rows),
        ideal_with_generated=known_sum(row.ideal_with_generated for row in rows),
        predicted=known_sum(row.predicted for row in rows),
        reported=known_sum(row.reported for row in rows),
        reported_coverage=len(said) / len(rows) if rows else None,
        reported_coverage_tokens=(said_tokens or 0) / tokens if tokens else None,
        broken=known_sum(row.broken for row in rows),
        lost=known_sum(row.lost for row in rows),
        excess=known_sum(row.excess for row in rows),
        ideal_share=share_of(rows, lambda row: row.ideal),
        predicted_share=share_of(rows, lambda row: row.predicted),
        reported_share=share_of(rows, lambda row: row.reported),
        ideal_share_median=_median_share(rows, lambda row: row.ideal),
        reported_share_median=_median_share(rows, lambda row: row.reported),
        estimated_turns=sum(row.estimated for row in rows),
    )


def _median_share(rows: Sequence[Row], figure: Callable[[Row], int | None]) -> float | None:
    by_session: dict[tuple[int | None, int | None], list[Row]] = {}
    for row in rows:
        by_session.setdefault((row.session, row.copy), []).append(row)
    shares = [share for some in by_session.values() if (share := share_of(some, figure)) is not None]
    return median(shares) if shares else None
