"""Why exchanges are one session: what each signal says, what was chosen with which confidence, and what speaks against it. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracer.identity.names import SESSION_IDS

type Signal = tuple[str, str]

ID_SIGNALS = (*SESSION_IDS, "body:prompt_cache_key", "origin:label", "origin:pid")
"""What names a session or its process, the most trusted first: two values in one session need a reason."""
WORDS = {
    "label": "the run wrapper says so",
    "user": "you decided so",
    "header": "an id of the session in the headers",
    "metadata": "an id of the session in the turn's metadata",
    "body": "an id of the session, or its cache key, in the body",
    "system": "a session folder named in the instructions",
    "lineage": "it names the answer it goes on from",
    "prefix": "it begins with an earlier prompt and goes on from its answer",
    "calls": "its history holds ids that an earlier answer gave",
    "text": "it tells words again that were said before",
    "spawn": "its first words are those of a tool call",
    "preamble": "the instructions are those of this thread",
    "first": "nothing: it begins a session",
    "unknown": "nothing",
}
"""Source -> what it means."""
_DOUBTFUL = 0.7
_MOST_VALUES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One exchange as it was placed, with its signals."""

    exchange: int
    source: str
    confidence: float
    signals: tuple[Signal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Exchanges that came to the session in one way."""

    source: str
    confidence: float
    exchanges: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A signal that names sessions or their processes, and the exchanges that show it."""

    name: str
    value: str
    exchanges: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """What speaks against it, in words, and where."""

    says: str
    exchanges: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything that is known of why these exchanges are one session."""

    evidence: tuple[Evidence, ...]
    signals: tuple[Shown, ...]
    contradictions: tuple[Contradiction, ...]


def explain(session: int, placed: Sequence[Placed], elsewhere: Mapping[Signal, frozenset[int]]) -> Explanation:
    """Of one session; `elsewhere`: sessions in which each signal of ID_SIGNALS stands."""
    by_way: dict[tuple[str, float], list[int]] = defaultdict(list)
    by_signal: dict[Signal, list[int]] = defaultdict(list)
    for each in placed:
        by_way[each.source, each.confidence].append(each.exchange)
        for signal in each.signals:
            if signal[0] in ID_SIGNALS:
                by_signal[signal].append(each.exchange)
    evidence = tuple(Evidence(source=source, confidence=sure, exchanges=tuple(found)) for (source, sure), found in by_way.items())
    shown = sorted(by_signal.items(), key=lambda pair: ID_SIGNALS.index(pair[0][0]))
    return Explanation(
        evidence=evidence,
        signals=tuple(Shown(name=name, value=value, exchanges=tuple(found)) for (name, value), found in shown[:_MOST_VALUES]),
        contradictions=(*_within(by_signal), *_between(session, by_signal, elsewhere), *_doubts(evidence)),
    )


def _within(by_signal: Mapping[Signal, list[int]]) -> Iterable[Contradiction]:
    """Several values of what should have one."""
    values: dict[str, list[Signal]] = defaultdict(list)
    for signal in by_signal:
        values[signal[0]].append(signal)
    for name, signals in values.items():
        if len(signals) > 1:
            exchanges = tuple(number for signal in signals[1:] for number in by_signal[signal])
            yield Contradiction(says=f"{name} has {len(signals)} values in this session", exchanges=exchanges)


def _between(session: int, by_signal: Mapping[Signal, list[int]], elsewhere: Mapping[Signal, frozenset[int]]) -> Iterable[Contradiction]:
    """What stands in other sessions too. A process may well be that of several sessions."""
    for signal, exchanges in by_signal.items():
        others = sorted(elsewhere.get(signal, frozenset()) - {session})
        if others:
            where = ", ".join(f"s{number}" for number in others[:5])
            yield Contradiction(says=f"{signal[0]} of the same value stands in {where} too", exchanges=tuple(exchanges))


def _doubts(evidence: Iterable[Evidence]) -> Iterable[Contradiction]:
    for each in evidence:
        if each.confidence < _DOUBTFUL and each.source != "first":
            yield Contradiction(says=f"only {WORDS.get(each.source, each.source)} ({each.confidence:.2f})", exchanges=each.exchanges)
