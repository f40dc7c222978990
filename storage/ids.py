"""The ids people type: `e12`, `s3`, `r2`, `t5`, a session's name or key or the beginning of its key, `latest`."""

import difflib
import re
from collections.abc import Sequence

import sqlalchemy as sa

from storage.errors import NotFoundError
from storage.schema import calls, exchanges, replayed, runs, sessions, threads
from storage.trace import Trace

_WORDS = {"e": "exchange", "s": "session", "r": "run", "t": "thread"}
_TABLES = {"e": exchanges, "s": sessions, "r": runs, "t": threads}
_LIST = {"e": "exchanges", "s": "sessions", "r": "runs", "t": "exchanges"}
_ID = re.compile(r"([esrt])([0-9]{1,18})")


def text(kind: str, number: int) -> str:
    """`s3` for ("s", 3). Kinds: e exchange, s session, r run, t thread."""
    return f"{kind}{number}"


def parse(trace: Trace, typed: str, kinds: str = "ser") -> tuple[str, int]:
    """What was meant, of the kinds allowed: (kind letter, id). NotFoundError with near candidates.

    A bare integer is an exchange; `latest` the latest of the first kind allowed that is a session or run. Exact ids win over names.
    """
    with trace.engine.connect() as connection:
        found = _by_id(connection, typed, kinds) or _latest(connection, typed, kinds)
        if found is None and "s" in kinds:
            found = _by_name(connection, typed)
        if found is None:
            raise _nothing(connection, typed, kinds)
        return found


def _by_id(connection: sa.Connection, typed: str, kinds: str) -> tuple[str, int] | None:
    match = _ID.fullmatch(f"e{typed}" if typed.isascii() and typed.isdigit() else typed)
    if not match or match[1] not in kinds:
        return None
    table = _TABLES[match[1]]
    number = connection.scalar(sa.select(table.c.id).where(table.c.id == int(match[2])))
    return None if number is None else (match[1], number)


def _latest(connection: sa.Connection, typed: str, kinds: str) -> tuple[str, int] | None:
    if typed != "latest":
        return None
    recorded = exchanges.outerjoin(replayed, replayed.c.exchange_id == exchanges.c.id)
    by_kind = {
        "s": sa.select(calls.c.session_id)
        .join(exchanges, exchanges.c.id == calls.c.exchange_id)
        .where(calls.c.session_id.is_not(None))
        .order_by(exchanges.c.started_ns.desc()),
        "r": sa.select(runs.c.id).order_by(runs.c.started_ns.desc(), runs.c.id.desc()),
        "e": sa.select(exchanges.c.id).select_from(recorded).where(replayed.c.run_id.is_(None)).order_by(exchanges.c.started_ns.desc()),
    }
    for kind in sorted(kinds, key="srte".index):
        if kind in by_kind and (number := connection.scalar(by_kind[kind].limit(1))) is not None:
            return kind, number
    return None


def _by_name(connection: sa.Connection, typed: str) -> tuple[str, int] | None:
    exact = sessions.c.key.in_((typed, f"label:{typed}")) | (sessions.c.name == typed)
    found = connection.scalars(sa.select(sessions.c.id).where(exact).order_by(sessions.c.id)).all()
    if not found and typed:
        found = connection.scalars(
            sa.select(sessions.c.id).where(sessions.c.key.startswith(typed, autoescape=True)).order_by(sessions.c.id).limit(6)
        ).all()
    if len(found) > 1:
        near = ", ".join(text("s", number) for number in found)
        raise NotFoundError(f"{typed!r} could be any of several sessions", hint=f"say which: {near}")
    return ("s", found[0]) if found else None


def _nothing(connection: sa.Connection, typed: str, kinds: str) -> NotFoundError:
    words = " or ".join(_WORDS[kind] for kind in kinds)
    near = difflib.get_close_matches(typed, _candidates(connection, kinds), n=3, cutoff=0.5)
    listed = " or ".join(dict.fromkeys(f"playhead {_LIST[kind]}" for kind in kinds))
    return NotFoundError(
        f"there is no {words} {typed!r} in this trace", hint=f"did you mean {', '.join(near)}?" if near else f"list them: {listed}"
    )


def _candidates(connection: sa.Connection, kinds: str) -> Sequence[str]:
    """The newest ids of each kind, and the names and keys of sessions."""
    found: list[str] = []
    for kind in kinds:
        table = _TABLES[kind]
        found += [text(kind, number) for number in connection.scalars(sa.select(table.c.id).order_by(table.c.id.desc()).limit(200))]
    if "s" in kinds:
        named = connection.execute(sa.select(sessions.c.name, sessions.c.key).order_by(sessions.c.id.desc()).limit(200))
        found += [word for row in named for word in row if word]
    return found
