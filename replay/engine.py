"""Plays lanes: each turn when all it waits for is over and its gap has passed, at most so many sessions at once.

It knows order and time and nothing of HTTP: what prepares and sends a turn (`Player`) and the clock are arguments, so that tests run in
virtual time. A failed turn is an end like any other: what waits for it goes on.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from replay.schedule import Lane, ScheduledTurn

if TYPE_CHECKING:
    from storage.records import ExchangeId

CONNECT_AHEAD_NS = 100_000_000
"""How long before a turn is due its connection is looked after, so that a new handshake is over when the clock strikes."""

SETTLE_NS = 10_000_000
"""How long after what it waits for was sent a turn is prepared: sessions that start together are all sent before any work begins beside."""


class Clock(Protocol):
    """Monotonic ns, and a sleep that ends not before a given stamp."""

    def now_ns(self) -> int: ...

    async def sleep_until(self, at_ns: int) -> None: ...


class Player[Prepared](Protocol):
    """What is done with a turn. `slot` is one of `concurrency` places: a session keeps its slot, and its connections, to its end."""

    async def prepare(self, slot: int, lane: Lane, turn: ScheduledTurn) -> Prepared:
        """Loads and edits what will be sent; called once all it waits for has been sent."""
        ...

    async def connect(self, prepared: Prepared) -> None:
        """Sees to it that a connection is open; called shortly before the turn is due."""
        ...

    async def send(self, prepared: Prepared, ready_ns: int) -> int:
        """Sends now and stays until the answer has ended, well or not; gives the monotonic ns of its end."""
        ...

    async def lane_ended(self, lane: Lane) -> None:
        """All turns of a lane are over."""
        ...


class MonotonicClock:
    """The real clock, on the running event loop."""

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC ns."""
        return time.monotonic_ns()

    async def sleep_until(self, at_ns: int) -> None:
        """Sleeps to a monotonic stamp; returns without giving way when it has passed."""
        while (left_ns := at_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 - it waits for the clock and nothing else
            await asyncio.sleep(left_ns / 1e9)


@dataclass(frozen=True, slots=True)
class _Latch:
    """Where the turns that wait for a turn look."""

    started: asyncio.Event
    ended: asyncio.Future[int]


async def play[Prepared](lanes: tuple[Lane, ...], concurrency: int, player: Player[Prepared], clock: Clock, *, lead_ns: int = 0) -> None:
    """Plays all lanes (in order of arrival) to their ends. The run begins `lead_ns` from now: the first turns are prepared meanwhile.

    Cancelling it cancels what is under way and starts nothing more.
    """
    origin_ns = clock.now_ns() + lead_ns
    waiting = iter(lanes)
    async with asyncio.TaskGroup() as group:
        for slot in range(min(concurrency, len(lanes))):
            group.create_task(_serve(_Place(slot, origin_ns), waiting, player, clock))


@dataclass(frozen=True, slots=True)
class _Place:
    slot: int
    origin_ns: int


async def _serve[Prepared](place: _Place, waiting: Iterator[Lane], player: Player[Prepared], clock: Clock) -> None:
    """One slot: takes the next session when its last one is over. A session that found no free slot is due when it gets one."""
    free_ns = place.origin_ns
    for lane in waiting:
        due_ns = max(place.origin_ns + lane.arrival_ns, free_ns)
        free_ns = await _Session(place.slot, lane, due_ns, player, clock).play()
        await player.lane_ended(lane)


class _Session[Prepared]:
    """The turns of one lane, each a task."""

    def __init__(self, slot: int, lane: Lane, due_ns: int, player: Player[Prepared], clock: Clock) -> None:
        self._slot, self._lane, self._due_ns, self._player, self._clock = slot, lane, due_ns, player, clock
        loop = asyncio.get_running_loop()
        self._latches: dict[ExchangeId, _Latch] = {t.turn.source: _Latch(asyncio.Event(), loop.create_future()) for t in lane.turns}

    async def play(self) -> int:
        """Plays all turns; gives the monotonic ns at which the last of them ended."""
        async with asyncio.TaskGroup() as group:
            for scheduled in self._lane.turns:
                group.create_task(self._play_turn(scheduled))
        return max((latch.ended.result() for latch in self._latches.values()), default=self._due_ns)

    async def _play_turn(self, scheduled: ScheduledTurn) -> None:
        before = [self._latches[other] for other in scheduled.turn.after]
        for latch in before:
            await latch.started.wait()
        begin_ns = self._clock.now_ns() + SETTLE_NS if before else self._due_ns + scheduled.gap_ns - 10 * CONNECT_AHEAD_NS
        await self._clock.sleep_until(begin_ns)
        prepared = await self._player.prepare(self._slot, self._lane, scheduled)
        ready_ns = max([await latch.ended for latch in before], default=self._due_ns) + scheduled.gap_ns
        await self._clock.sleep_until(ready_ns - CONNECT_AHEAD_NS)
        await self._player.connect(prepared)
        await self._clock.sleep_until(ready_ns)
        latch = self._latches[scheduled.turn.source]
        latch.started.set()
        latch.ended.set_result(await self._player.send(prepared, ready_ns))
