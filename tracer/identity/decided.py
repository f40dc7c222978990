"""What the user decided of sessions, applied: it beats every signal. Pure.

A session merged away keeps its threads, inside the session that takes it in; one that is split gives the new session a copy of each
thread that goes on in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records import ExchangeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """`session` belongs to `into`. Keys."""

    session: str
    into: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Of `session`, what started at `from_ns` (epoch) or later, the first of it being `exchange`, belongs to `into`."""

    session: str
    into: str
    from_ns: int
    exchange: ExchangeId


type Verdict = Merge | Cut


def session_of(verdicts: Sequence[Verdict], session: str, started: tuple[int, ExchangeId]) -> str:
    """The session that an exchange found to be in `session` belongs to; `started`: its start and id. In the order they were decided."""
    for verdict in verdicts:
        if verdict.session != session:
            continue
        if isinstance(verdict, Merge) or started >= (verdict.from_ns, verdict.exchange):
            session = verdict.into
    return session


def thread_in(thread: str, found: str, decided: str) -> str:
    """The key of a thread in the session decided on: threads of merged sessions stand side by side."""
    return thread if found == decided else f"{decided}/{thread}"
