"""Order, gaps and limits, in virtual time: a minute of waiting costs no time, and every stamp is exact."""

import asyncio
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from replay.engine import MonotonicClock, play
from replay.plan import PlannedTurn
from replay.schedule import Lane, ScheduledTurn
from storage.records import ExchangeId

MS = 1_000_000


class VirtualSelector(selectors.SelectSelector):
    """Instead of waiting it moves the loop's time on."""

    def __init__(self) -> None:
        super().__init__()
        self.time_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("the loop would wait for ever")
        self.time_s += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.virtual = VirtualSelector()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.time_s


class VirtualClock:
    def now_ns(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e9)

    async def sleep_until(self, at_ns: int) -> None:
        while (left_ns := at_ns - self.now_ns()) > 0:  # noqa: ASYNC110 - a clock
            await asyncio.sleep(left_ns / 1e9)


@dataclass
class Scripted:
    """Takes `took_ms[source]` for a turn (100 otherwise) and remembers when each was due, started and over."""

    took_ms: dict[int, int] = field(default_factory=dict)
    late_ms: int = 0
    log: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    slots: dict[tuple[int, int], int] = field(default_factory=dict)
    prepared_ms: dict[int, int] = field(default_factory=dict)
    ended_lanes: list[tuple[int, int]] = field(default_factory=list)
    clock: VirtualClock = field(default_factory=VirtualClock)

    async def prepare(self, slot: int, lane: Lane, turn: ScheduledTurn) -> tuple[Lane, ScheduledTurn]:
        self.prepared_ms[turn.turn.source] = self.clock.now_ns() // MS
        assert self.slots.setdefault((lane.session, lane.copy), slot) == slot
        return lane, turn

    async def connect(self, prepared: tuple[Lane, ScheduledTurn]) -> None:
        await asyncio.sleep(self.late_ms / 1e3)

    async def send(self, prepared: tuple[Lane, ScheduledTurn], ready_ns: int) -> int:
        lane, turn = prepared
        start_ns = self.clock.now_ns()
        await asyncio.sleep(self.took_ms.get(turn.turn.source, 100) / 1e3)
        end_ns = self.clock.now_ns()
        self.log.append((turn.turn.source, lane.copy, ready_ns // MS, start_ns // MS, end_ns // MS))
        return end_ns

    async def lane_ended(self, lane: Lane) -> None:
        self.ended_lanes.append((lane.session, lane.copy))


def lane(session: int, *turns: tuple[int, tuple[int, ...], int], arrival_ms: int = 0, copy: int = 0) -> Lane:
    """Turns as (source, after, gap ms)."""
    made = tuple(
        ScheduledTurn(
            PlannedTurn(
                source=ExchangeId(source),
                session=session,
                thread=1,
                number=1,
                kind="turn",
                dialect="openai_chat",
                after=tuple(ExchangeId(a) for a in after),
                gap_ns=gap * MS,
                aborted=False,
                request_sha256="0",
                prompt_tokens=None,
                output_tokens=None,
            ),
            gap * MS,
        )
        for source, after, gap in turns
    )
    return Lane(session=session, copy=copy, arrival_ns=arrival_ms * MS, turns=made)


def run(player: Any, *lanes: Lane, concurrency: int = 99, until: Callable[[], Any] | None = None) -> None:
    """Plays in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(play(lanes, concurrency, player, VirtualClock()))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([(1, (), 0), (2, (1,), 30), (3, (2,), 0)], {1: (0, 100), 2: (130, 230), 3: (230, 330)}),
        ([(1, (), 0), (2, (1,), 10), (3, (1,), 40), (4, (2, 3), 5)], {1: (0, 100), 2: (110, 210), 3: (140, 240), 4: (245, 345)}),
        ([(1, (), 20), (2, (), 70)], {1: (20, 120), 2: (70, 170)}),
        ([(1, (), 0), (2, (1,), 5_000)], {1: (0, 100), 2: (5_100, 5_200)}),
    ],
    ids=["chain", "fork and join", "parallel roots", "long gap"],
)
def test_a_turn_starts_when_all_it_waits_for_is_over_and_its_gap_has_passed(
    turns: list[tuple[int, tuple[int, ...], int]], expected: dict[int, tuple[int, int]]
) -> None:
    """Due and start are the same instant when nothing is late."""
    player = Scripted()
    run(player, lane(1, *turns))
    assert {source: (start, end) for source, _, _, start, end in player.log} == expected
    assert all(ready == start for _, _, ready, start, _ in player.log)


def test_the_gap_counts_from_the_replayed_end() -> None:
    """A slower target pushes everything behind it."""
    player = Scripted(took_ms={1: 900})
    run(player, lane(1, (1, (), 0), (2, (1,), 30)))
    assert [entry[2:4] for entry in player.log] == [(0, 0), (930, 930)]


def test_at_most_so_many_sessions_at_once_and_each_keeps_its_slot() -> None:
    """A session that finds no free slot is due when it gets one; copies are sessions."""
    player = Scripted()
    run(player, *[lane(n, (n, (), 0), arrival_ms=10 * n, copy=n) for n in range(4)], concurrency=2)
    assert [(source, ready, start) for source, _, ready, start, _ in player.log] == [(0, 0, 0), (1, 10, 10), (2, 100, 100), (3, 110, 110)]
    assert player.slots == {(0, 0): 0, (1, 1): 1, (2, 2): 0, (3, 3): 1}
    assert sorted(player.ended_lanes) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_a_late_client_is_late_against_what_was_due() -> None:
    """A connection that takes longer than what is left shows as the difference between due and start."""
    player = Scripted(late_ms=150)
    run(player, lane(1, (1, (), 0), (2, (1,), 20)))
    assert [(ready, start) for _, _, ready, start, _ in player.log] == [(0, 150), (270, 400)]


def test_a_turn_is_prepared_while_what_it_waits_for_is_under_way() -> None:
    """Loading and editing do not add to the gap, and no body is loaded long before."""
    player = Scripted(took_ms={2: 3_000})
    run(player, lane(1, (1, (), 0), (2, (1,), 30), (3, (2,), 30), (4, (), 60_000)))
    assert player.prepared_ms == {1: 0, 2: 10, 3: 140, 4: 59_000}


def test_cancelling_starts_nothing_more() -> None:
    """What had ended before stays ended."""
    player = Scripted()

    async def cut() -> None:
        task = asyncio.ensure_future(play((lane(1, (1, (), 0), (2, (1,), 0), (3, (2,), 0)),), 1, player, VirtualClock()))
        await asyncio.sleep(0.15)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(cut())
    assert [entry[0] for entry in player.log] == [1]
    assert player.ended_lanes == []


def test_nothing_to_play_is_over_at_once() -> None:
    """No lane, no slot."""
    player = Scripted()
    run(player)
    assert player.log == []


def test_the_real_clock_sleeps_to_its_stamp_and_not_less() -> None:
    """A sleep that woke early would make a turn start before it was due."""
    clock = MonotonicClock()

    async def sleep() -> int:
        at_ns = clock.now_ns() + 3 * MS
        await clock.sleep_until(at_ns)
        await clock.sleep_until(at_ns - 10 * MS)
        return clock.now_ns() - at_ns

    assert asyncio.run(sleep()) >= 0
