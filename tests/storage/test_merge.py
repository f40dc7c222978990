"""Merging: everything comes, once, and right; sources stay as they are; a kill or damage costs nothing that is whole."""

import hashlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import recorded_chats
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from storage import database, exchanges, leases, merge, names, runs, schema, sessions, source
from storage.errors import TraceError
from storage.packing import Codec, pack_headers
from storage.records import Arrival, Exchange, ExchangeId, Origin, Replayed
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer
from tracer import reading, wire


def varied(exchange: Exchange, **changes: Any) -> Exchange:
    return Exchange(**{**{name: getattr(exchange, name) for name in Exchange.__dataclass_fields__ if name != "id"}, **changes})


def put(trace: Trace, *told: Exchange, replayed: Replayed | None = None) -> None:
    with closing(Writer(trace, wire.split)) as writer:
        for exchange in told:
            writer.put(exchange, replayed)
    reading.catch_up(trace)


def chats(*numbers: int, turns: int = 3) -> list[Exchange]:
    return [recorded_chats.exchange(number, turn) for number in numbers for turn in range(1, turns + 1)]


def brought(into: Trace, path: Path) -> merge.Merged:
    """A merge as the command does it."""
    with source.opened(str(path), beside=Path(into.location).parent) as opened:
        came = merge.merge(into, opened, wire.split)
        reading.catch_up(into)
        names.carry(into, opened, came.ids)
    return came


@pytest.fixture
def into(tmp_path: Path) -> Iterator[Trace]:
    with Trace.open(tmp_path / "into.trace", create=True) as trace:
        yield trace


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A trace of two sessions, one with a name and a replay, closed."""
    path = tmp_path / "theirs.trace"
    with Trace.open(path, create=True) as trace:
        put(trace, *chats(1, 2))
        run = runs.create(trace, target="http://x", settings={"a": 1}, started_ns=77)
        late = varied(recorded_chats.exchange(2, 1), started_ns=recorded_chats.START_NS + 10**12, origin=Origin())
        put(trace, late, replayed=Replayed(run_id=run.id, source_exchange=ExchangeId(4), copy=1, ready_ns=99))
        runs.finish(trace, run.id, ended_ns=88, summary={"turns": 1})
        sessions.rename(trace, 2, "the hard one")
    return path


def test_everything_comes_under_new_ids_and_the_source_stays_as_it_is(into: Trace, theirs: Path) -> None:
    put(into, *chats(9, turns=4))
    before = hashlib.sha256(theirs.read_bytes()).digest()
    came = brought(into, theirs)
    assert (came.exchanges, came.known, came.runs, came.open, came.damaged) == (7, 0, 1, 0, [])
    assert hashlib.sha256(theirs.read_bytes()).digest() == before
    assert sorted(each.name for each in theirs.parent.glob("theirs*")) == ["theirs.trace"]
    assert [(row.key, row.name, row.turns) for row in sessions.listing(into)] == [
        ("ses_9", None, 4),
        ("ses_1", None, 3),
        ("ses_2", "the hard one", 3),
    ]
    (row,) = exchanges.listing(into, runs=[run.id for run in runs.listing(into)])
    (run,) = runs.listing(into)
    assert (run.target, run.settings, run.summary, run.ended_ns) == ("http://x", {"a": 1}, {"turns": 1}, 88)
    assert (row.run, row.copy, row.ready_ns, row.session) == (run.id, 1, 99, 3)
    assert row.source_exchange is not None
    assert exchanges.request_body(into, row.source_exchange) == recorded_chats.body(2, 1)
    assert verify(into).is_whole


def test_what_comes_is_to_the_byte_and_the_nanosecond_what_it_was(into: Trace, theirs: Path) -> None:
    came = brought(into, theirs)
    with Trace.open(theirs) as trace:
        for row in exchanges.listing(trace, everything=True):
            there, here = exchanges.load(trace, row.id), exchanges.load(into, ExchangeId(came.ids[row.id]))
            assert varied(there) == varied(here)


def test_merging_again_adds_nothing_by_whatever_way(into: Trace, theirs: Path, tmp_path: Path) -> None:
    brought(into, theirs)
    again = brought(into, theirs)
    assert (again.exchanges, again.known, again.runs) == (0, 7, 0)
    with Trace.open(tmp_path / "third.trace", create=True) as third:
        brought(third, theirs)
        brought(third, tmp_path / "into.trace")
        assert len(exchanges.listing(third, everything=True)) == 7
        assert len(runs.listing(third)) == 1


def test_of_exchanges_alike_as_many_come_as_are_missing(into: Trace, tmp_path: Path) -> None:
    put(into, *chats(1, turns=1))
    with Trace.open(tmp_path / "b.trace", create=True) as other:
        put(other, *chats(1, turns=1), *chats(1, turns=1), *chats(1, turns=1))
    came = brought(into, tmp_path / "b.trace")
    assert (came.exchanges, came.known) == (2, 1)
    assert brought(into, tmp_path / "b.trace").exchanges == 0


def test_a_name_given_here_is_kept(into: Trace, theirs: Path) -> None:
    put(into, *chats(2))
    sessions.rename(into, 1, "mine")
    with source.opened(str(theirs), beside=theirs.parent) as opened:
        came = merge.merge(into, opened, wire.split)
        reading.catch_up(into)
        assert names.carry(into, opened, came.ids) == names.Carried(0, (("mine", "the hard one"),))
    assert [row.name for row in sessions.listing(into)] == ["mine", None]


def test_a_source_that_is_being_recorded_into_gives_what_has_ended_and_the_rest_later(into: Trace, tmp_path: Path) -> None:
    with Trace.open(tmp_path / "b.trace", create=True) as other, closing(Writer(other, wire.split)) as writer:
        writer.put(recorded_chats.exchange(1, 1))
        second = recorded_chats.exchange(1, 2)
        ticket = writer.begin(varied(second, response=None, ended_ns=None))
        writer.flush()
        came = brought(into, tmp_path / "b.trace")
        assert (came.exchanges, came.open) == (1, 1)
        writer.finish(ticket, second)
        writer.flush()
        came = brought(into, tmp_path / "b.trace")
        assert (came.exchanges, came.known, came.open) == (1, 1, 0)
    assert [row.number for row in exchanges.listing(into)] == [1, 2]


def test_a_replay_that_is_being_played_comes_when_it_has_ended(into: Trace, tmp_path: Path) -> None:
    with Trace.open(tmp_path / "b.trace", create=True) as other:
        put(other, *chats(1))
        run = runs.create(other, target="http://x", settings={"player": leases.mark()}, started_ns=time.time_ns())
        turn = Replayed(run_id=run.id, source_exchange=ExchangeId(1), copy=0, ready_ns=9)
        put(other, varied(recorded_chats.exchange(1, 1), started_ns=time.time_ns()), replayed=turn)
        came = brought(into, tmp_path / "b.trace")
        assert (came.exchanges, came.open, came.runs) == (3, 1, 0)
        runs.finish(other, run.id, ended_ns=time.time_ns(), summary={})
        came = brought(into, tmp_path / "b.trace")
        assert (came.exchanges, came.known, came.runs) == (1, 3, 1)


def test_what_a_killed_recorder_left_comes_as_interrupted_and_once(into: Trace, tmp_path: Path) -> None:
    path = tmp_path / "b.trace"
    with Trace.open(path, create=True) as other:
        writer = Writer(other, wire.split)
        ticket = writer.begin(varied(recorded_chats.exchange(1, 2), response=None, ended_ns=None))
        writer.response_head(ticket, varied(recorded_chats.exchange(1, 2), ended_ns=None))
        writer.arrival(ticket, Arrival(9, b"data: half"))
        writer.flush()
        with other.engine.begin() as connection:
            connection.execute(sa.update(schema.recorder_runs).values(pid=999_999_999))
        for _ in range(2):
            brought(into, path)
        (row,) = exchanges.listing(into)
        assert (row.state, exchanges.response_body(into, row.id)) == ("interrupted", b"data: half")
        writer.close()


def test_what_lies_in_the_write_ahead_log_comes_and_stays_there(into: Trace, tmp_path: Path) -> None:
    with Trace.open(tmp_path / "b.trace", create=True) as other:
        put(other, *chats(1))
        left = {end: (tmp_path / f"b.trace{end}").read_bytes() for end in ("", "-wal")}
    path = tmp_path / "killed.trace"
    for end, content in left.items():
        Path(f"{path}{end}").write_bytes(content)
    assert left["-wal"]
    assert brought(into, path).exchanges == 3
    assert {end: Path(f"{path}{end}").read_bytes() for end in left} == left


def test_a_damaged_exchange_is_named_and_the_others_come(into: Trace, theirs: Path) -> None:
    with sqlite3.connect(theirs) as connection:
        connection.execute("UPDATE bodies SET content = x'00' WHERE id = (SELECT request_body_id FROM exchanges WHERE id = 2)")
    connection.close()
    came = brought(into, theirs)
    assert came.exchanges == 6
    assert len(came.damaged) == 1
    assert "e2" in came.damaged[0]
    assert verify(into).is_whole


def test_a_merge_that_is_killed_leaves_a_whole_trace_and_goes_on(into: Trace, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "_BATCH_BYTES", 1)
    store: Callable[..., None] = merge._Merging._store
    left = iter(range(4))

    def killed(self: merge._Merging, waiting: list[Any]) -> None:
        next(left)
        store(self, waiting)

    monkeypatch.setattr(merge._Merging, "_store", killed)
    with pytest.raises((StopIteration, RuntimeError)):
        brought(into, theirs)
    assert verify(into).is_whole
    assert len(exchanges.listing(into)) == 4
    monkeypatch.setattr(merge._Merging, "_store", store)
    came = brought(into, theirs)
    assert (came.exchanges, came.known) == (3, 4)
    assert verify(into).is_whole


def old_trace(path: Path) -> None:
    """A trace of the first schema, with one exchange."""
    engine = database._engine(path)
    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        dictionary = connection.scalar(sa.select(schema.meta.c.content).where(schema.meta.c.key == "dictionary"))
        assert dictionary is not None
        codec, digest = Codec(bytes(dictionary)), hashlib.sha256(b"old").digest()
        connection.exec_driver_sql("INSERT INTO bodies (id, sha256, size, content) VALUES (1, ?, 3, ?)", (digest, codec.compress(b"old")))
        connection.exec_driver_sql("INSERT INTO origins (id) VALUES (1)")
        connection.exec_driver_sql(
            "INSERT INTO exchanges (id, started_ns, ended_ns, transport, method, url, state, chunks, request_bytes, request_sha256,"
            " response_bytes, response_sha256, origin_id, request_body_id, request_headers)"
            " VALUES (1, 5, 9, 'http1', 'POST', 'http://x/', 'complete', 0, 3, ?, 0, ?, 1, 1, ?)",
            (digest, hashlib.sha256(b"").digest(), codec.compress(pack_headers(()))),
        )
    engine.dispose()


def test_an_older_trace_is_read_through_a_copy(into: Trace, tmp_path: Path) -> None:
    path = tmp_path / "old.trace"
    old_trace(path)
    before = path.read_bytes()
    assert brought(into, path).exchanges == 1
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".playhead*"))
    assert exchanges.request_body(into, ExchangeId(1)) == b"old"


def test_a_newer_trace_or_none_is_refused(into: Trace, theirs: Path, tmp_path: Path) -> None:
    with sqlite3.connect(theirs) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    with pytest.raises(TraceError, match="newer Playhead"):
        brought(into, theirs)
    with pytest.raises(TraceError, match="no trace at"):
        brought(into, tmp_path / "nothing.trace")
    (tmp_path / "text.txt").write_text("hello")
    with pytest.raises(TraceError, match="is not a trace"):
        brought(into, tmp_path / "text.txt")
