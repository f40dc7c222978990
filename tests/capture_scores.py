"""Scores what the reader makes of the captures of real agents against their answer key: `import capture_scores`.

Every capture goes through the writer, the store and the reader as if it had been recorded, several agents' captures in one trace, one
after the other. WebSocket captures count as their messages do; HTTP-only figures leave them out.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import captures

from storage import exchanges, thread_rows
from storage.records import ExchangeRow, Origin
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire

ROUNDS = 3
KINDS = {
    "turn": {"turn"}, "title": {"title"}, "router": {"router"}, "compaction": {"compaction"}, "prewarm": {"prewarm"},
    "memory": {"memory", "side"}, "commit_message": {"commit_message", "side"}, "other": {"other", "side", "count_tokens"},
}  # fmt: skip
STATES = {"client": {"client_aborted"}, "server": {"upstream_aborted", "truncated", "error"}, None: {"complete"}}
_APART_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class Judged:
    """One entry of the answer key beside what the reader says."""

    name: str
    entry: dict[str, Any]
    row: ExchangeRow
    parent_call: str | None = None
    """The tool call that started the thread."""


@dataclass
class Score:
    """Pairs found, invented and missed; things right and wrong; what went wrong in words."""

    sessions: Counter[str] = field(default_factory=Counter)
    threads: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    parents: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    """The very tool calls that started sub-agents."""
    retries: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    requests: int = 0

    def figures(self) -> dict[str, float | None]:
        """F1 of pairs (sessions, threads), of retries, and shares right; None where there was nothing to find."""
        return {
            "sessions": _f1(self.sessions),
            "threads": _f1(self.threads),
            "kinds": _share(self.kinds),
            "states": _share(self.states),
            "parents": _share(self.parents),
            "calls": _share(self.calls),
            "retries": _f1(self.retries),
        }


def _f1(counts: Counter[str]) -> float | None:
    total = 2 * counts["tp"] + counts["fp"] + counts["fn"]
    return 2 * counts["tp"] / total if total else None


def _share(counts: Counter[str]) -> float | None:
    total = counts["right"] + counts["wrong"]
    return counts["right"] / total if total else None


def rounds(names: Iterable[str]) -> list[list[str]]:
    """Captures of one agent in different traces as far as there are traces."""
    found: list[list[str]] = [[] for _ in range(ROUNDS)]
    seen: Counter[str] = Counter()
    for name in sorted(names):
        agent = name.split("/")[0]
        found[seen[agent] % ROUNDS].append(name)
        seen[agent] += 1
    return found


def uses_websocket(name: str) -> bool:
    """Whether a capture holds messages on a WebSocket."""
    return any("/f" in entry["id"] for entry in captures.truth()[name]["requests"])


def read(folder: Path, names: list[str], *, with_processes: bool = False) -> list[Judged]:
    """What the reader makes of some captures in one trace. `with_processes`: a client process a session is known."""
    truth = captures.truth()
    order: list[tuple[str, str]] = []
    with Trace.open(folder / "captures.trace", create=True) as trace:
        writer = Writer(trace, wire.split)
        for place, name in enumerate(names):
            sessions = {entry["id"]: entry["session"] for entry in truth[name]["requests"]}
            for captured in captures.load(name):
                exchange = captured.exchange
                started_ns = 1_760_000_000_000_000_000 + place * _APART_NS + exchange.started_ns % _APART_NS
                pid = 1000 * (place + 1) + int((sessions.get(captured.id) or "s1")[1:]) if with_processes else None
                writer.put(replace(exchange, started_ns=started_ns, ended_ns=exchange.ended_ns or 0, origin=Origin(client_pid=pid)))
                order.append((name, captured.id))
        writer.close()
        reading.catch_up(trace)
        rows = sorted(exchanges.listing(trace), key=lambda row: row.id)
        threads = thread_rows.of_threads(trace, sorted({row.thread for row in rows if row.thread is not None}))
    entries = {(name, entry["id"]): entry for name in names for entry in truth[name]["requests"]}
    pairs = zip(order, rows, strict=True)
    return [
        Judged(key[0], entries[key], row, threads[row.thread].parent_call if row.thread is not None else None)
        for key, row in pairs
        if key in entries and entries[key]["kind"] != "ws_upgrade"
    ]


def score(judged: list[Judged], wanted: Callable[[str], bool], total: Score) -> None:
    """Adds what holds for the captures whose name is wanted."""
    mine = [each for each in judged if wanted(each.name)]
    total.requests += len(mine)
    placed = [each for each in mine if each.entry["session"] and each.entry["kind"] != "other"]
    _pairs(total.sessions, placed, lambda each: (each.name, each.entry["session"]), lambda each: each.row.session)
    threaded = [each for each in placed if each.entry["kind"] in ("turn", "prewarm") and each.entry["thread"]]
    _pairs(total.threads, threaded, lambda each: (each.name, each.entry["session"], each.entry["thread"]), lambda each: each.row.thread)
    _tell(total, threaded)
    _singles(total, mine)


def _pairs(counts: Counter[str], items: list[Judged], key: Callable[[Judged], Any], found: Callable[[Judged], Any]) -> None:
    for a, b in itertools.combinations(items, 2):
        same, said = key(a) == key(b), found(a) is not None and found(a) == found(b)
        counts["tp"] += same and said
        counts["fp"] += said and not same
        counts["fn"] += same and not said


def _tell(total: Score, items: list[Judged]) -> None:
    by_thread: dict[Any, set[Any]] = defaultdict(set)
    by_row: dict[Any, set[Any]] = defaultdict(set)
    for each in items:
        key = (each.name, each.entry["session"], each.entry["thread"])
        by_thread[key].add((each.row.session, each.row.thread))
        by_row[each.row.session, each.row.thread].add(key)
    total.wrong += [f"{key}: in {len(found)} threads" for key, found in by_thread.items() if len(found) > 1]
    total.wrong += [f"one thread holds {sorted(map(str, keys))}" for keys in by_row.values() if len(keys) > 1]


def _singles(total: Score, items: list[Judged]) -> None:
    by_id = {(each.name, each.entry["id"]): each.row for each in items}
    names_of = {each.row.id: (each.name, each.entry["id"]) for each in items}
    for each in items:
        where, row, entry = f"{each.name} {each.entry['id']}", each.row, each.entry
        _judge(total, total.kinds, row.kind in KINDS[entry["kind"]], f"{where}: kind {row.kind}, is {entry['kind']}")
        if entry["kind"] != "other":
            right = row.state in STATES[entry.get("aborted")]
            _judge(total, total.states, right, f"{where}: state {row.state}, aborted by {entry.get('aborted')}")
        said = names_of.get(row.retry_of) if row.retry_of is not None else None
        true = (each.name, entry["retry_of"]) if entry.get("retry_of") else None
        if true in by_id or said is not None:
            total.retries["tp"] += true is not None and said == true
            total.retries["fn"] += true is not None and said != true
            total.retries["fp"] += said is not None and said != true
            total.wrong += [f"{where}: retry of {said}, is {true}"] if said != true else []
        parent = by_id.get((each.name, entry["parent"]["id"])) if entry.get("parent") else None
        if parent is not None and entry["kind"] in ("turn", "prewarm"):
            right = row.parent_thread is not None and row.parent_thread == parent.thread
            _judge(total, total.parents, right, f"{where}: parent {row.parent_thread}, is {parent.thread}")
            if (call := entry["parent"]["call"]) is not None:
                _judge(total, total.calls, each.parent_call == call, f"{where}: started by {each.parent_call}, is {call}")


def _judge(total: Score, counts: Counter[str], right: bool, text: str) -> None:
    counts["right" if right else "wrong"] += 1
    if not right:
        total.wrong.append(text)
