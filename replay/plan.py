"""From the recorded exchanges of sessions to the turns that a replay sends: which, in what dependence, after what gap.

Pure, and bodies are not loaded: a plan of thousands of turns is a few numbers a turn. It does not know targets, edits or time.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from storage.records import ExchangeId, ExchangeRow, State, Transport

LEFT_OUT = {
    "unread": "no model call (unknown traffic, probes, upgrades)",
    "prewarm": "prewarm on a WebSocket (HTTP has only requests with an answer)",
    "before_unknown": "goes on from an answer that is not in the trace",
    "in_flight": "still in flight when the trace was read",
    "no_answer": "failed without an answer",
    "refused": "answered with an error status",
    "never_began": "given up before the answer began",
    "unsendable": "no body, or an address that HTTP cannot carry",
    "side_call": "side call, left out on request",
}
"""Why a recorded exchange is not replayed, as the JSON and the text say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTurn:
    """One recorded exchange that will be sent again. `gap_ns`: from the latest end among `after`, or from the session's arrival."""

    source: ExchangeId
    session: int
    thread: int | None
    number: int | None
    kind: str
    dialect: str
    after: tuple[ExchangeId, ...]
    gap_ns: int
    aborted: bool
    """The recorded client left or the stream was cut: this replay lets it run to its end."""
    request_sha256: str
    prompt_tokens: int | None
    output_tokens: int | None
    """As recorded; None where the recording does not say."""
    over_websocket: bool = False
    """Recorded as a message on a WebSocket: it is sent as a POST, with all of its input."""
    lineage: tuple[ExchangeId, ...] = ()
    """What it goes on from, oldest first: the request holds only what is new, and is made whole before it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSession:
    """The turns of one session in order of their recorded start. Times are Unix-epoch ns of the recording."""

    session: int
    started_ns: int
    ended_ns: int
    turns: tuple[PlannedTurn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All sessions in order of arrival; `left_out` counts by reason (see LEFT_OUT)."""

    sessions: tuple[PlannedSession, ...]
    left_out: Mapping[str, int]

    @property
    def turns(self) -> tuple[PlannedTurn, ...]:
        """Every planned turn, session by session."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    @property
    def fingerprint(self) -> str:
        """sha256 of what would be sent and in what dependence: equal for two runs that play the same thing."""
        digest = hashlib.sha256()
        for turn in self.turns:
            before = f" {turn.lineage}" if turn.lineage else ""
            digest.update(f"{turn.source} {turn.request_sha256} {turn.after} {turn.gap_ns}{before}\n".encode())
        return digest.hexdigest()


type Links = Mapping[ExchangeId, ExchangeId | None]
"""Of each exchange that names an answer it goes on from: which exchange gave it; None where the trace does not hold it."""


def plan(rows: Sequence[ExchangeRow], *, links: Links | None = None, without_side_calls: Iterable[str] = ()) -> Plan:
    """The plan of recorded exchanges. `without_side_calls`: kinds to leave out (none by default: they were part of the load)."""
    dropped = frozenset(without_side_calls)
    lineages = {row.id: _lineage(row.id, links or {}) for row in rows}
    reasons = {row.id: _left_out(row, dropped) or ("before_unknown" if lineages[row.id] is None else None) for row in rows}
    by_id = {row.id: row for row in rows}
    kept = {row.id for row in rows if reasons[row.id] is None}
    by_session: dict[int, list[ExchangeRow]] = {}
    for row in sorted(rows, key=_order):
        if row.id in kept and row.session is not None:
            by_session.setdefault(row.session, []).append(row)
    sessions = tuple(_session(members, by_id, kept, lineages) for members in by_session.values())
    return Plan(sessions=sessions, left_out=dict(Counter(reason for reason in reasons.values() if reason)))


def _lineage(number: ExchangeId, links: Links) -> tuple[ExchangeId, ...] | None:
    """What an exchange goes on from, oldest first; None where some of it is not known."""
    found: list[ExchangeId] = []
    while number in links:
        before = links[number]
        if before is None or before in found:
            return None
        found.append(before)
        number = before
    return tuple(reversed(found))


_SENDABLE = re.compile(r"[!-~]+")


def _left_out(row: ExchangeRow, dropped: frozenset[str]) -> str | None:
    """Why a row is not sent again; None when it is."""
    if row.dialect is None or row.session is None or (row.method != "POST" and row.transport != Transport.WS):
        return "unread"
    if row.transport == Transport.WS and row.kind == "prewarm":
        return "prewarm"
    if row.state == State.IN_FLIGHT:
        return "in_flight"
    if row.status is None:
        return "no_answer" if row.state == State.ERROR else "never_began"
    if not 200 <= row.status < 300:
        return "refused"
    if row.state != State.COMPLETE and row.response_bytes == 0:
        return "never_began"
    if row.request_bytes == 0 or not _SENDABLE.fullmatch(row.url):
        return "unsendable"
    return "side_call" if row.kind in dropped else None


def _order(row: ExchangeRow) -> tuple[int, int]:
    return row.started_ns, row.id


def _session(
    members: list[ExchangeRow],
    by_id: Mapping[ExchangeId, ExchangeRow],
    kept: set[ExchangeId],
    lineages: Mapping[ExchangeId, tuple[ExchangeId, ...] | None],
) -> PlannedSession:
    """`members` in order of start, at least one."""
    arrival_ns = members[0].started_ns
    ended: list[ExchangeRow] = []
    turns = []
    for row in members:
        after = _resolved(row, by_id, kept) or _anchor(row, ended)
        turn = _turn(row, after, _gap_ns(row, after, by_id, arrival_ns))
        turns.append(replace(turn, lineage=lineages[row.id] or ()))
        ended.append(row)
    assert members[0].session is not None
    return PlannedSession(
        session=members[0].session, started_ns=arrival_ns, ended_ns=max(_end_ns(row) for row in members), turns=tuple(turns)
    )


def _turn(row: ExchangeRow, after: tuple[ExchangeId, ...], gap_ns: int) -> PlannedTurn:
    assert row.session is not None
    assert row.dialect is not None
    return PlannedTurn(
        source=row.id,
        session=row.session,
        thread=row.thread,
        number=row.number,
        kind=row.kind,
        dialect=row.dialect,
        after=after,
        gap_ns=gap_ns,
        aborted=row.state != State.COMPLETE,
        request_sha256=row.request_sha256,
        prompt_tokens=row.usage.prompt,
        output_tokens=row.usage.output if row.state == State.COMPLETE else None,
        over_websocket=row.transport == Transport.WS,
    )


def _resolved(row: ExchangeRow, by_id: Mapping[ExchangeId, ExchangeRow], kept: set[ExchangeId]) -> tuple[ExchangeId, ...]:
    """What must be over before this starts. Where a dependency is left out, what *it* waited for takes its place.

    Only what began earlier counts: a wait on something later could never end.
    """
    found: set[ExchangeId] = set()
    seen: set[ExchangeId] = set()
    waiting = list(row.after)
    while waiting:
        wanted = waiting.pop()
        other = by_id.get(wanted)
        if wanted in seen or other is None or _order(other) >= _order(row):
            continue
        seen.add(wanted)
        if wanted in kept:
            found.add(wanted)
        else:
            waiting.extend(other.after)
    return tuple(sorted(found))


def _anchor(row: ExchangeRow, earlier: list[ExchangeRow]) -> tuple[ExchangeId, ...]:
    """For a turn that waits for nothing known: what ended last before it began, so that no gap policy moves it ahead of that."""
    before = [other for other in earlier if _end_ns(other) <= row.started_ns]
    return (max(before, key=_end_ns).id,) if before else ()


def _gap_ns(row: ExchangeRow, after: tuple[ExchangeId, ...], by_id: Mapping[ExchangeId, ExchangeRow], arrival_ns: int) -> int:
    """Start minus the latest end; 0 where the recording has the start before that end (nobody can wait a negative time)."""
    since_ns = max((_end_ns(by_id[other]) for other in after), default=arrival_ns)
    return max(0, row.started_ns - since_ns)


def _end_ns(row: ExchangeRow) -> int:
    """Unix-epoch ns at which the stream closed; its start where no end was kept."""
    return row.started_ns + (row.ended_ns or 0)
