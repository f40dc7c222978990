"""One replay from its plan to its figures: opens the connections, lets the engine play, keeps what was heard.

Here the pure parts meet the trace and the network. While answers stream, the event loop only stamps and frames; bodies are loaded and
edited in a thread shortly before they are due, and what was heard is stored apart from it (`replay.player`).
"""

import asyncio
import contextlib
import gc
import platform
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

from replay import counters, edits, engine, schedule, sender, served, wholes
from replay.edits import Edits
from replay.plan import Plan
from replay.player import Keeper, Player
from replay.schedule import Lane
from replay.summary import summary
from storage import exchanges, leases, runs
from storage.errors import PlayheadError
from storage.records import ExchangeId, ExchangeRow, Headers, RunId
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire
from tracer.clock import Clock

LEAD_NS = 100_000_000
LEAD_EACH_NS = 4_000_000
"""From the start to the moment the first turns are due: so long for each session that begins at once, to prepare them."""

SWITCH_INTERVAL_S = 0.0001
"""How long a thread that loads or stores may keep the interpreter from the loop that stamps (the default is fifty times that)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a plan is played; stored with the run."""

    edits: Edits
    gaps: str = "keep"
    speed: float = 1.0
    concurrency: int | None = None
    """Sessions at once; None: as many as overlapped in the recording, times the copies."""
    copies: int = 1
    only_turns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished run. `stopped`: the user ended it before its time."""

    run: RunId
    summary: dict[str, Any]
    stopped: bool


def concurrency(plan: Plan, options: Options) -> int:
    """Sessions at once."""
    return options.concurrency or max(1, schedule.most_at_once(plan)) * options.copies


def settings(plan: Plan, options: Options) -> dict[str, Any]:
    """What is stored with the run: what was played, how, with which declared edits, by what."""
    pace = {
        "gaps": options.gaps,
        "speed": options.speed,
        "concurrency": concurrency(plan, options),
        "copies": options.copies,
        "only_turns": options.only_turns,
    }
    return {
        "plan": {
            "sha256": plan.fingerprint,
            "sessions": len(plan.sessions),
            "turns": len(plan.turns) * options.copies,
            "left_out": dict(plan.left_out),
            "aborted_when_recorded": sum(turn.aborted for turn in plan.turns) * options.copies,
        },
        "policy": edits.policy(options.edits, pace),
        "edits": [*edits.declared(options.edits), *wholes.declared(plan.turns * options.copies)],
        "playhead": metadata.version("playhead"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def replay(trace: Trace, plan: Plan, sources: Mapping[ExchangeId, ExchangeRow], options: Options) -> Outcome:
    """Plays a plan and gives its figures. Ctrl-C ends it early and keeps what had come. Raises TargetError when there is no server."""
    _check(trace, plan, options.edits)
    lanes = schedule.lanes(plan, schedule.pace(options.gaps, options.speed), options.copies)
    slots = [sender.Lane(options.edits.target) for _ in range(min(concurrency(plan, options), len(lanes)))]
    target, key = options.edits.target, _key(plan, options.edits)
    # Before the connections of the run are there: each may occupy a worker of the server.
    found = counters.found(target, key)
    told = settings(plan, options) | {"target_found": counters.document(found), "player": leases.mark()}
    clock = Clock()
    with asyncio.Runner() as runner, _undisturbed():
        runner.run(sender.warm(slots))
        run = runs.create(trace, target=target, settings=told, started_ns=clock.now_ns())
        with contextlib.closing(Writer(trace, wire.split)) as writer:
            options = replace(options, edits=replace(options.edits, run_nonce=f"{run.id}-{secrets.token_hex(4)}"))
            player = Player(Keeper(trace, writer, run.id, clock), options.edits, slots)
            try:
                stopped = runner.run(_play(lanes, player))
            finally:
                player.keep_the_rest()
    after = counters.counted(target, key) if found.counted is not None else None
    reading.catch_up(trace)
    rows = exchanges.listing(trace, runs=[run.id])
    figures = summary(rows, sources, planned=len(plan.turns) * options.copies)
    figures |= {"reconnected": player.reconnected, "engine": served.figures(found.counted, after, rows)}
    runs.finish(trace, run.id, ended_ns=clock.now_ns(), summary=figures)
    return Outcome(run=run.id, summary=figures, stopped=stopped)


def _check(trace: Trace, plan: Plan, declared: Edits) -> None:
    """Whether any turn can carry the declared edits; the first that can ends the search. Raises the first UnfitError when none can."""
    refused: edits.UnfitError | None = None
    recorded = wholes.Recorded(trace)
    for turn in plan.turns:
        try:
            edits.edited(recorded.request(turn), declared, turn, 0)
        except edits.UnfitError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def _key(plan: Plan, declared: Edits) -> Headers:
    """The headers that carry the key outside of turns."""
    if declared.key is None:
        return ()
    header = edits.key_header(plan.turns[0].dialect, declared.key)
    # Anthropic answers nothing without a version.
    return (header, ("anthropic-version", "2023-06-01")) if header[0] == "x-api-key" else (header,)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """While inside, other threads give way quickly, and what is there already (plan, modules) is no work for the garbage collector."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


async def _play(lanes: tuple[Lane, ...], player: Player) -> bool:
    """Plays everything; whether it was stopped before its end. A PlayheadError in a turn ends the run with that error."""
    playing = asyncio.ensure_future(
        engine.play(lanes, len(player.slots), player, engine.MonotonicClock(), lead_ns=LEAD_NS + LEAD_EACH_NS * len(player.slots))
    )
    with _stopping(playing):
        try:
            await playing
        except asyncio.CancelledError:
            return True
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            for slot in player.slots:
                slot.close()
            await asyncio.sleep(0)
    return False


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The user's own error out of a group of tasks, else the group: a bug shows its traceback."""
    mine = group.subgroup(PlayheadError)
    error: BaseException = mine or group
    while mine is not None and isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextlib.contextmanager
def _stopping(task: "asyncio.Future[None]") -> Iterator[None]:
    """While inside, Ctrl-C and SIGTERM cancel the task. Signals reach the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    ends = (signal.SIGINT, signal.SIGTERM)
    for number in ends:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in ends:
            loop.remove_signal_handler(number)
