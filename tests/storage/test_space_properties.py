"""Whatever is recorded, merged, deleted and collected: the trace is whole, and as large as if it had never had what is gone."""

import tempfile
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import recorded_chats
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage import exchanges, merge, schema, sessions, source
from storage.records import Exchange
from storage.retention import Wanted, clear
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer
from tracer import reading, wire

NAMES = ("bodies", "nodes", "elements", "origins", "exchanges", "calls", "sessions", "threads", "signals", "signal_values", "trails")
SESSIONS, TURNS = st.integers(0, 4), st.integers(1, 4)
type Turn = tuple[int, int]


def told(turn: Turn) -> Exchange:
    """Sessions 0 and 3, 1 and 4 say the same: they share all of their prompts and nothing else."""
    number, place = turn
    exchange = recorded_chats.exchange(number, place)
    return replace(exchange, request=replace(exchange.request, body=recorded_chats.body(number % 3, place)))


def put(trace: Trace, turns: Counter[Turn]) -> None:
    with closing(Writer(trace, wire.split)) as writer:
        for turn in sorted(turns.elements(), key=lambda turn: (turn[1], turn[0])):
            writer.put(told(turn))
    reading.catch_up(trace)


def counts(trace: Trace) -> dict[str, int]:
    with trace.engine.connect() as connection:
        return {name: connection.scalar(sa.select(sa.func.count()).select_from(schema.metadata.tables[name])) or 0 for name in NAMES}


class Space(RuleBasedStateMachine):
    """Two traces against counters of the turns that they must hold."""

    @initialize()
    def begin(self) -> None:
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.trace, self.other = (
            self.stack.enter_context(Trace.open(self.folder / f"{name}.trace", create=True)) for name in ("main", "other")
        )
        self.model, self.elsewhere = Counter[Turn](), Counter[Turn]()
        self.ids: dict[str, int] = {}

    @rule(number=SESSIONS, places=st.sets(TURNS, min_size=1))
    def record(self, number: int, places: set[int]) -> None:
        new = Counter({(number, place): 1 for place in places})
        put(self.trace, new)
        self.model += new

    @rule(number=SESSIONS, places=st.sets(TURNS, min_size=1))
    def record_elsewhere(self, number: int, places: set[int]) -> None:
        new = Counter({(number, place): 1 for place in places})
        put(self.other, new)
        self.elsewhere += new

    @rule(numbers=st.sets(SESSIONS, min_size=1, max_size=2))
    def delete(self, numbers: set[int]) -> None:
        keys = {f"ses_{number}" for number in numbers}
        clear(self.trace, Wanted(sessions=[row.id for row in sessions.listing(self.trace) if row.key in keys]))
        self.model = Counter({turn: times for turn, times in self.model.items() if turn[0] not in numbers})
        self.ids = {key: number for key, number in self.ids.items() if key not in keys}

    @rule()
    def merge(self) -> None:
        with source.opened(str(self.folder / "other.trace"), beside=self.folder) as opened:
            merge.merge(self.trace, opened, wire.split)
        reading.catch_up(self.trace)
        self.model |= self.elsewhere

    @rule()
    def collect(self) -> None:
        result = clear(self.trace, Wanted())
        assert result.deleted.exchanges == result.collected.bodies == 0

    @invariant()
    def sessions_keep_their_ids(self) -> None:
        now = {row.key: row.id for row in sessions.listing(self.trace)}
        assert now == now | self.ids
        self.ids = now

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        with self.stack, Trace.open(self.folder / "fresh.trace", create=True) as fresh:
            clear(self.trace, Wanted())
            put(fresh, self.model)
            assert counts(self.trace) == counts(fresh)
            assert Counter(_held(self.trace)) == Counter(_held(fresh))
            assert verify(self.trace).is_whole


def _held(trace: Trace) -> list[tuple[int, str, str, str | None]]:
    """What is listed, ids left out."""
    keys = {row.id: row.key for row in sessions.listing(trace)}
    return [(row.started_ns, row.request_sha256, row.response_sha256, keys.get(row.session or 0)) for row in exchanges.listing(trace)]


Space.TestCase.settings = settings(max_examples=15, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck))
test_space_is_that_of_what_is_held = Space.TestCase
