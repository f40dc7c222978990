"""When each session of a plan starts and how long each turn waits: the gap policy, the speed, the copies.

Pure. Time here is a length, never a clock: `replay.engine` waits. Sessions arrive as recorded; what lies between arrivals is a gap like
any other, so `cap` and `drop` shorten it too.
"""

import math
from dataclasses import dataclass

from replay.plan import Plan, PlannedTurn
from storage.errors import PlayheadError

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """What becomes of a recorded gap: at most `cap_ns` (None: all of it, 0: none), then divided by `speed`."""

    cap_ns: int | None = None
    speed: float = 1.0

    def gap_ns(self, recorded_ns: int) -> int:
        """The gap that is waited."""
        kept_ns = recorded_ns if self.cap_ns is None else min(recorded_ns, self.cap_ns)
        return round(kept_ns / self.speed)


@dataclass(frozen=True, slots=True)
class ScheduledTurn:
    """A planned turn with the gap it will wait."""

    turn: PlannedTurn
    gap_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One copy of one session on its way; `arrival_ns` since the run began."""

    session: int
    copy: int
    arrival_ns: int
    turns: tuple[ScheduledTurn, ...]


def pace(gaps: str, speed: float) -> Pace:
    """The pace of `keep`, `drop` or `cap:SECONDS`. Raises PlayheadError for anything else, or a speed that is not above 0."""
    if not (speed > 0 and math.isfinite(speed)):
        raise PlayheadError(f"a speed of {speed} does not move", hint="give a number above 0, e.g. --speed 2")
    if gaps == "keep":
        return Pace(None, speed)
    if gaps == "drop":
        return Pace(0, speed)
    name, _, seconds = gaps.partition(":")
    try:
        cap_s = float(seconds) if name == "cap" else math.nan
    except ValueError:
        cap_s = math.nan
    if not (cap_s >= 0 and math.isfinite(cap_s)):
        raise PlayheadError(f"no gap policy is called {gaps!r}", hint="use keep, drop or cap:SECONDS, e.g. --gaps cap:5")
    return Pace(round(cap_s * SECOND_NS), speed)


def lanes(plan: Plan, pace: Pace, copies: int = 1) -> tuple[Lane, ...]:
    """Every copy of every session, in order of arrival."""
    made = []
    arrival_ns, before_ns = 0, plan.sessions[0].started_ns if plan.sessions else 0
    for session in plan.sessions:
        arrival_ns += pace.gap_ns(session.started_ns - before_ns)
        before_ns = session.started_ns
        turns = tuple(ScheduledTurn(turn, pace.gap_ns(turn.gap_ns)) for turn in session.turns)
        made += [Lane(session=session.session, copy=copy, arrival_ns=arrival_ns, turns=turns) for copy in range(copies)]
    return tuple(made)


def most_at_once(plan: Plan) -> int:
    """How many sessions ran side by side at the most when they were recorded (0 for an empty plan)."""
    changes = sorted([(s.started_ns, 1) for s in plan.sessions] + [(max(s.ended_ns, s.started_ns + 1), -1) for s in plan.sessions])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    return most


def waited_ns(lane: Lane) -> int:
    """The gaps on the longest way through a lane: the least it can take even on a target that answers at once."""
    ends: dict[int, int] = {}
    for scheduled in lane.turns:
        ends[scheduled.turn.source] = max((ends[other] for other in scheduled.turn.after), default=0) + scheduled.gap_ns
    return max(ends.values(), default=0)
