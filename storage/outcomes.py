"""What one recorded command said to its models, in figures: how many exchanges, how they ended, in which sessions, how many tokens."""

from dataclasses import dataclass

import sqlalchemy as sa

from storage.schema import calls, exchanges, origins
from storage.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`states`: how many exchanges ended how, most first; `calls`: those that a dialect was read in; `refused`: answered with 400 or more.

    Sums of tokens are None where nothing was reported.
    """

    exchanges: int
    states: tuple[tuple[str, int], ...]
    calls: int
    refused: int
    sessions: tuple[int, ...]
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None


def of_command(trace: Trace, pid: int, since_ns: int) -> Outcome:
    """Of the command with this process id that was started at `since_ns` (Unix-epoch ns), as far as it is read."""
    e, c = exchanges.c, calls.c
    mine = sa.and_(origins.c.client_pid == pid, e.started_ns >= since_ns)
    source = exchanges.join(origins, origins.c.id == e.origin_id).outerjoin(calls, c.exchange_id == e.id)
    state = sa.func.coalesce(c.state, e.state)
    states = sa.select(state, sa.func.count()).select_from(source).where(mine).group_by(state).order_by(sa.func.count().desc(), state)
    figures = (
        sa.select(
            sa.func.count(),
            sa.func.count(c.dialect),
            sa.func.count(sa.case((e.status >= 400, 1))),
            sa.func.sum(c.prompt_tokens),
            sa.func.sum(c.cached_tokens),
            sa.func.sum(c.output_tokens),
        )
        .select_from(source)
        .where(mine)
    )
    sessions = sa.select(c.session_id).select_from(source).where(mine, c.session_id.is_not(None)).distinct().order_by(c.session_id)
    with trace.engine.connect() as connection:
        count, read, refused, prompt, cached, output = connection.execute(figures).one()
        return Outcome(
            exchanges=count,
            states=tuple((name, number) for name, number in connection.execute(states)),
            calls=read,
            refused=refused,
            sessions=tuple(connection.scalars(sessions)),
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
        )


def count(trace: Trace) -> int:
    """How many exchanges the trace holds, replayed ones too."""
    with trace.engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(exchanges)) or 0
