"""What the engine does with a turn: load and edit its request, send it, keep what was heard.

Loading, editing and storing happen in threads; on the event loop there is only the sending. What was heard waits in memory until its
session has ended, or until it is much or old: a session of hundreds of turns must not pile up, nor an hour of it be lost to a crash.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from replay import edits, sender
from replay.edits import Edits
from replay.schedule import Lane, ScheduledTurn
from replay.stamping import StampedConnection
from replay.wholes import Recorded
from storage.records import Exchange, ExchangeId, Replayed, Request, RunId
from storage.trace import Trace, secret
from storage.writer import Writer
from tracer.clock import Clock
from tracer.redaction import Redaction

HELD_BYTES = 32 << 20
HELD_NS = 10_000_000_000
FLUSH_BYTES = 64 << 20
"""Handed to the writer without waiting for it: its queue is bounded, and what finds it full is lost."""
FLUSH_PATIENCE_S = 600.0

type LaneKey = tuple[int, int]
"""Session and copy."""


@dataclass(slots=True)
class Prepared:
    """A turn that is ready to be sent. `kept` is its request as it may be stored."""

    slot: int
    lane: LaneKey
    source: ExchangeId
    kept: Request
    message: sender.Message | None
    """None: nothing can be sent, for the reason that `unsendable` gives."""
    unsendable: str = ""
    connection: StampedConnection | None = None
    unreached: OSError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A turn that has been sent, and what came of it."""

    source: ExchangeId
    copy: int
    kept: Request
    heard: sender.Heard
    ready_ns: int


class Keeper:
    """Gives what was recorded and puts what was heard into the trace, secrets masked. Blocks: for threads."""

    def __init__(self, trace: Trace, writer: Writer, run: RunId, clock: Clock) -> None:
        self.recorded = Recorded(trace)
        self._writer, self._run, self._clock = writer, run, clock
        self._redaction = Redaction(secret(trace))
        self._unflushed_bytes = 0

    def masked(self, request: Request) -> Request:
        """The request as it may be kept."""
        return replace(request, url=self._redaction.url(request.url), headers=self._redaction.headers(request.headers))

    def put(self, played: Sequence[Played]) -> None:
        """Hands turns to the writer."""
        for turn in played:
            ready_ns = self._clock.unix_ns(turn.ready_ns)
            self._writer.put(
                self._exchange(turn), Replayed(run_id=self._run, source_exchange=turn.source, copy=turn.copy, ready_ns=ready_ns)
            )
            self._unflushed_bytes += _size(turn)
            if self._unflushed_bytes > FLUSH_BYTES:
                self.flush()

    def flush(self) -> None:
        """Waits until all is stored. Raises StorageFullError or TraceError when it is not."""
        self._unflushed_bytes = 0
        self._writer.flush(FLUSH_PATIENCE_S)

    def _exchange(self, turn: Played) -> Exchange:
        heard = replace(turn.heard, headers=self._redaction.headers(turn.heard.headers))
        return sender.exchange(turn.kept, heard, self._clock)


class Player:
    """Implements `engine.Player`."""

    def __init__(self, keeper: Keeper, edits: Edits, slots: list[sender.Lane]) -> None:
        self._keeper, self._edits, self.slots = keeper, edits, slots
        self._played: dict[LaneKey, list[Played]] = {}
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="beside the replay")
        """One thread: the loop that stamps waits for the interpreter behind one other at most."""
        self.reconnected = 0
        """Turns that were sent a second time, over a new connection (`sender.send`)."""

    async def prepare(self, slot: int, lane: Lane, turn: ScheduledTurn) -> Prepared:
        """Loads the recorded request and edits it."""
        return await asyncio.get_running_loop().run_in_executor(self._beside, self._prepare, slot, lane, turn)

    def _prepare(self, slot: int, lane: Lane, scheduled: ScheduledTurn) -> Prepared:
        turn, key = scheduled.turn, (lane.session, lane.copy)
        if _is_due(self._played.get(key, ())):
            self._keeper.put(self._played.pop(key, ()))
        try:
            request = edits.edited(self._keeper.recorded.request(turn), self._edits, turn, lane.copy)
            return Prepared(slot, key, turn.source, self._keeper.masked(request), sender.message(request))
        except edits.UnfitError as error:
            reason = "its body cannot carry the declared edits: " + error.why
        except ValueError as error:
            reason = str(error)
        # One odd request is a failed turn, not the end of the others.
        recorded = self._keeper.recorded.as_it_was(turn)
        meant = replace(recorded, url=edits.addressed(recorded, self._edits.target))
        return Prepared(slot, key, turn.source, self._keeper.masked(meant), None, reason)

    async def connect(self, prepared: Prepared) -> None:
        """Takes a connection of the lane, or learns that there is none."""
        if prepared.message is None:
            return
        try:
            prepared.connection = await self.slots[prepared.slot].take()
        except OSError as error:
            prepared.unreached = error

    async def send(self, prepared: Prepared, ready_ns: int) -> int:
        """Sends and hears the turn out; the monotonic ns of its end."""
        try:
            heard = await self._hear(prepared)
        except sender.Cut as cut:
            self._keep(prepared, cut.heard, ready_ns)
            raise
        self._keep(prepared, heard, ready_ns)
        return heard.end_ns

    async def _hear(self, prepared: Prepared) -> sender.Heard:
        if prepared.message is None:
            return sender.unsent(prepared.unsendable)
        if prepared.connection is not None and not prepared.connection.is_open:
            # Taken before the gap, closed by the server since: llama.cpp ends every stream that way, and it offers keep-alive.
            self.slots[prepared.slot].drop(prepared.connection)
            prepared.connection = None
            await self.connect(prepared)
        if prepared.connection is None:
            return sender.unreached(prepared.unreached or OSError("not connected"))
        return await sender.send(self.slots[prepared.slot], prepared.connection, prepared.message)

    def _keep(self, prepared: Prepared, heard: sender.Heard, ready_ns: int) -> None:
        played = Played(source=prepared.source, copy=prepared.lane[1], kept=prepared.kept, heard=heard, ready_ns=ready_ns)
        self._played.setdefault(prepared.lane, []).append(played)
        self.reconnected += heard.reconnected

    async def lane_ended(self, lane: Lane) -> None:
        """Stores the session."""
        played = self._played.pop((lane.session, lane.copy), [])
        await asyncio.get_running_loop().run_in_executor(self._beside, self._keeper.put, played)

    def keep_the_rest(self) -> None:
        """Stores what sessions that were stopped had heard, and waits for it."""
        self._beside.shutdown()
        for played in self._played.values():
            self._keeper.put(played)
        self._played.clear()
        self._keeper.flush()


def _size(turn: Played) -> int:
    return len(turn.kept.body) + sum(len(piece.data) for piece in turn.heard.pieces)


def _is_due(played: Sequence[Played]) -> bool:
    """Whether what is held of a session is so much, or so old, that it must not wait for the session's end."""
    held_bytes = sum(_size(turn) for turn in played)
    return held_bytes > HELD_BYTES or (bool(played) and time.monotonic_ns() - played[0].heard.end_ns > HELD_NS)
