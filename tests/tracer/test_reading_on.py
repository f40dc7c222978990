"""Reading goes on where it stopped: only what can matter is brought back, and the same comes out as at once."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import batched
from pathlib import Path

import captures
import pytest
from identity_traffic import Wire, assistant, calls, result, user

from storage import places, trails
from storage.records import Exchange, ExchangeId, Placement
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire


def write(trace: Trace, some: Iterator[Exchange] | tuple[Exchange, ...] | list[Exchange]) -> None:
    """Stores exchanges as a recorder would."""
    writer = Writer(trace, wire.split)
    for exchange in some:
        writer.put(replace(exchange, id=None))
    writer.close()


def placed(path: Path, exchanges: list[Exchange], at_a_time: int) -> dict[ExchangeId, Placement]:
    """Where everything stands when so many are read at a time; what is only said when it is placed left out."""
    with Trace.open(path, create=True) as trace:
        for some in batched(exchanges, at_a_time):
            write(trace, some)
            assert reading.catch_up(trace) == len(some)
        return {place.exchange_id: place for place in places.placements(trace)}


@captures.needed
@pytest.mark.parametrize("at_a_time", [1, 7])
def test_agents_read_bit_by_bit(tmp_path: Path, at_a_time: int) -> None:
    """Real traffic of all agents, one after the other: sessions, threads, retries, gaps are those of reading it at once."""
    names = captures.names()[:: 3 if at_a_time == 1 else 1]
    found: list[Exchange] = []
    for place, name in enumerate(names):
        for captured in captures.load(name):
            exchange = captured.exchange
            started_ns = 1_760_000_000_000_000_000 + place * 3_600_000_000_000 + exchange.started_ns % 3_600_000_000_000
            found.append(replace(exchange, started_ns=started_ns, ended_ns=exchange.ended_ns or 0))
    found.sort(key=lambda exchange: exchange.started_ns)
    assert placed(tmp_path / "bits.trace", found, at_a_time) == placed(tmp_path / "whole.trace", found, len(found))


def test_only_what_can_matter_is_brought_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of sessions, those used last and the one gone on with."""
    monkeypatch.setattr(trails, "_RECENT", 10)
    made = Wire()
    talks = [[user(f"Question {number}")] for number in range(120)]
    old = [made.exchange(talk, calls((f"call_{number:010}", "ls", {"path": "."}))) for number, talk in enumerate(talks)]
    brought: list[int] = []
    load = trails.load

    def counted(trace: Trace, version: int, some: list[int]) -> Iterator[tuple[ExchangeId, bytes]]:
        brought.extend(some)
        return load(trace, version, some)

    with Trace.open(tmp_path / "a.trace", create=True) as trace:
        write(trace, old)
        reading.catch_up(trace)
        monkeypatch.setattr(trails, "load", counted)
        more = [*talks[3], calls(("call_0000000003", "ls", {"path": "."})), result("call_0000000003", "a")]
        write(trace, [made.exchange(more, assistant("Yes."))])
        assert reading.catch_up(trace) == 1
        found = {place.exchange_id: place for place in places.placements(trace)}
        assert found[ExchangeId(121)].thread_key == found[ExchangeId(4)].thread_key
        assert found[ExchangeId(121)].after == (4,)
    assert len(brought) == 10
