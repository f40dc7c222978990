"""Deleting: what goes leaves nothing behind, what stays is untouched, whoever records meanwhile loses nothing."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import recorded_chats
import sqlalchemy as sa

from storage import exchanges, leases, numbering, retention, runs, schema, sessions
from storage.errors import PlayheadError
from storage.records import Arrival, Exchange, ExchangeId, Origin, Replayed, Response, RunId
from storage.retention import Wanted, clear, rehearse
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer
from tracer import reading, wire

DAY_NS = 86_400_000_000_000
CONTENT = ("bodies", "nodes", "elements", "origins", "exchanges", "calls", "sessions", "threads", "signals", "signal_values", "trails")


def counts(trace: Trace) -> dict[str, int]:
    with trace.engine.connect() as connection:
        return {name: connection.scalar(sa.select(sa.func.count()).select_from(schema.metadata.tables[name])) or 0 for name in CONTENT}


def put(trace: Trace, *told: Exchange, replayed: Replayed | None = None) -> None:
    """Records, as a recorder that has ended."""
    with closing(Writer(trace, wire.split)) as writer:
        for exchange in told:
            writer.put(exchange, replayed)
    reading.catch_up(trace)


def chats(*numbers: int, turns: int = 3) -> list[Exchange]:
    return [recorded_chats.exchange(number, turn) for number in numbers for turn in range(1, turns + 1)]


def ids(trace: Trace) -> list[int]:
    return [row.id for row in sessions.listing(trace)]


@pytest.fixture
def talks(tmp_path: Path) -> Iterator[Trace]:
    """A trace of four sessions of three turns."""
    with Trace.open(tmp_path / "talks.trace", create=True) as trace:
        put(trace, *chats(1, 2, 3, 4))
        yield trace


def test_a_deleted_session_leaves_what_a_trace_has_that_never_had_it(talks: Trace, tmp_path: Path) -> None:
    bodies = {row.id: exchanges.request_body(talks, row.id) for row in exchanges.listing(talks)}
    sessions.rename(talks, 2, "a name of the user's")
    result = clear(talks, Wanted(sessions=[2, 3]))
    assert (result.sessions, result.deleted.exchanges, result.deleted.sessions) == ((2, 3), 6, 2)
    with Trace.open(tmp_path / "other.trace", create=True) as other:
        put(other, *chats(1, 4))
        assert counts(talks) == counts(other)
    assert ids(talks) == [1, 4]
    assert all(exchanges.request_body(talks, row.id) == bodies[row.id] for row in exchanges.listing(talks))
    assert verify(talks).is_whole


def test_a_rehearsal_says_what_would_go_and_changes_nothing(talks: Trace) -> None:
    before = counts(talks)
    rehearsed = rehearse(talks, Wanted(sessions=[2]))
    assert counts(talks) == before
    done = clear(talks, Wanted(sessions=[2]))
    assert (rehearsed.deleted, rehearsed.collected, rehearsed.sessions) == (done.deleted, done.collected, done.sessions)


def test_ids_of_what_was_deleted_are_not_given_again(talks: Trace) -> None:
    clear(talks, Wanted(sessions=[4]))
    put(talks, *chats(5))
    assert ids(talks) == [1, 2, 3, 5]
    assert min(row.id for row in exchanges.listing(talks, sessions=[5])) == 13
    with talks.engine.connect() as connection:
        assert numbering.retired(connection).highest["exchanges"] == 12


def test_a_recorder_forgets_rows_that_were_deleted_beside_it(talks: Trace) -> None:
    with closing(Writer(talks, wire.split)) as writer:
        writer.put(recorded_chats.exchange(7, 3))
        writer.flush()
        with talks.engine.begin() as connection:
            connection.execute(sa.delete(schema.exchanges).where(schema.exchanges.c.id == 13))
        assert clear(talks, Wanted()).collected.elements > 0
        writer.put(recorded_chats.exchange(7, 4))  # goes on from what the writer remembers and the trace has no more
    assert exchanges.request_body(talks, exchanges.listing(talks)[-1].id) == recorded_chats.body(7, 4)
    assert verify(talks).is_whole


def test_age_is_that_of_the_last_thing_that_happened_to_a_session(talks: Trace) -> None:
    run = runs.create(talks, target="http://x", settings={}, started_ns=1)
    runs.finish(talks, run.id, ended_ns=2, summary={})
    late = recorded_chats.START_NS + 10 * DAY_NS
    replay = Exchange(**{**_fields(recorded_chats.exchange(2, 1)), "started_ns": late})
    put(talks, replay, replayed=Replayed(run_id=run.id, source_exchange=ExchangeId(4), copy=0, ready_ns=late))
    clear(talks, Wanted(before_ns=recorded_chats.START_NS + 5 * DAY_NS))
    assert ids(talks) == [2]
    assert len(runs.listing(talks)) == 1
    assert clear(talks, Wanted(before_ns=late + DAY_NS)).runs == (run.id,)
    assert not any(counts(talks).values())
    assert not runs.listing(talks)


def _fields(exchange: Exchange) -> dict[str, object]:
    return {name: getattr(exchange, name) for name in Exchange.__dataclass_fields__ if name != "id"}


def test_a_run_can_go_alone_and_its_sessions_stay(talks: Trace) -> None:
    run = runs.create(talks, target="http://x", settings={}, started_ns=1)
    put(talks, recorded_chats.exchange(2, 1), replayed=Replayed(run_id=run.id, source_exchange=ExchangeId(4), copy=0, ready_ns=5))
    result = clear(talks, Wanted(runs=[run.id]))
    assert (result.runs, result.deleted.exchanges, result.deleted.runs) == ((run.id,), 1, 1)
    assert ids(talks) == [1, 2, 3, 4]
    assert verify(talks).exchanges == 12


def test_while_a_replay_is_played_nothing_goes(talks: Trace) -> None:
    run = runs.create(talks, target="http://x", settings={"player": leases.mark()}, started_ns=time.time_ns())
    with pytest.raises(PlayheadError, match="s1: still being"):
        clear(talks, Wanted(sessions=[1]))
    with pytest.raises(PlayheadError, match=f"r{run.id} is being played"):
        clear(talks, Wanted(runs=[run.id]))
    result = clear(talks, Wanted(before_ns=time.time_ns()))
    assert (result.deleted.exchanges, result.held) == (0, (1, 2, 3, 4))
    runs.finish(talks, run.id, ended_ns=time.time_ns(), summary={})
    assert clear(talks, Wanted(before_ns=time.time_ns())).deleted.sessions == 4


def test_a_run_broken_off_on_another_machine_holds_nothing(talks: Trace) -> None:
    runs.create(talks, target="http://x", settings={"player": {"host": "elsewhere", "pid": 1, "began": "x"}}, started_ns=1)
    assert clear(talks, Wanted(sessions=[1])).deleted.sessions == 1


def open_exchange(session: int, turn: int, **origin: str) -> Exchange:
    """A turn whose answer has not come."""
    fields = _fields(recorded_chats.exchange(session, turn))
    return Exchange(**{**fields, "response": None, "ended_ns": None, "origin": Origin(**origin)})  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["prompt", "connection", "label"])
def test_the_session_that_is_being_recorded_stays(talks: Trace, how: str) -> None:
    fields = _fields(recorded_chats.exchange(9, 1)) | {"origin": Origin(connection="c9", label="run-9")}
    put(talks, Exchange(**fields))  # type: ignore[arg-type]
    told = {
        "prompt": open_exchange(3, 4),
        "connection": open_exchange(8, 1, connection="c9"),
        "label": open_exchange(8, 1, label="run-9"),
    }[how]
    spared = 3 if how == "prompt" else 5
    with closing(Writer(talks, wire.split)) as writer:
        ticket = writer.begin(told)
        writer.request_complete(ticket, told)
        writer.flush()
        result = clear(talks, Wanted(before_ns=time.time_ns()))
        assert ids(talks) == [spared]
        assert result.held == (spared,)
        writer.arrival(ticket, Arrival(10, b"data"))
        answered = Response(status=200, headers=(), headers_at_ns=5, arrivals=(Arrival(10, b"data"),))
        writer.finish(ticket, Exchange(**{**_fields(told), "response": answered, "ended_ns": 20}))
    assert verify(talks).is_whole


def test_a_session_with_a_fresh_exchange_stays_while_somebody_records(talks: Trace) -> None:
    fresh = Exchange(**{**_fields(recorded_chats.exchange(5, 1)), "started_ns": time.time_ns()})
    with closing(Writer(talks, wire.split)) as writer:
        writer.put(fresh)
        writer.flush()
        reading.catch_up(talks)
        with pytest.raises(PlayheadError, match="s5: still being"):
            clear(talks, Wanted(sessions=[5]))
    assert clear(talks, Wanted(sessions=[5])).deleted.sessions == 1


def test_what_has_no_session_goes_by_age(talks: Trace) -> None:
    request = recorded_chats.exchange(1, 1).request
    models = Exchange(**{**_fields(recorded_chats.exchange(1, 1)), "started_ns": 5, "request": _get(request.url)})
    put(talks, models)
    assert clear(talks, Wanted(before_ns=DAY_NS)).deleted == retention.Deleted(exchanges=1)
    assert ids(talks) == [1, 2, 3, 4]


def _get(url: str) -> object:
    from storage.records import Request

    return Request(method="GET", url=url.replace("chat/completions", "models"), headers=(), body=b"")


def test_the_oldest_go_until_the_trace_fits(tmp_path: Path) -> None:
    with Trace.open(tmp_path / "a.trace", create=True) as trace:
        put(trace, *chats(*range(1, 31), turns=8))
        before = rehearse(trace, Wanted()).bytes_before
        wanted = Wanted(most_bytes=before * 6 // 10)
        expected = rehearse(trace, wanted)
        result = clear(trace, wanted)
        left = ids(trace)
        assert result.bytes_after <= before * 6 // 10
        assert left == list(range(31 - len(left), 31))
        assert abs(expected.deleted.sessions - result.deleted.sessions) <= 4
        assert 8 <= len(left) <= 20
        assert (tmp_path / "a.trace").stat().st_size <= before * 6 // 10
        assert verify(trace).is_whole
        with pytest.raises(PlayheadError, match="a trace that holds nothing takes"):
            clear(trace, Wanted(most_bytes=1000))


def test_what_was_deleted_is_not_in_the_file_any_more(talks: Trace) -> None:
    with talks.engine.connect() as connection:
        wanted = sa.select(schema.bodies.c.content).where(
            schema.bodies.c.id == schema.exchanges.c.response_body_id, schema.exchanges.c.id == 5
        )
        content = bytes(connection.scalar(wanted))
    path = Path(talks.location)
    clear(talks, Wanted())
    assert content in path.read_bytes()
    clear(talks, Wanted(sessions=[2]))
    assert content not in b"".join(each.read_bytes() for each in path.parent.glob("talks.trace*"))


def test_the_lease_and_journal_of_the_dead_are_collected(talks: Trace) -> None:
    with talks.engine.begin() as connection:
        row = {"id": 50, "host": "elsewhere", "pid": 1, "began": "x", "started_ns": 1, "heartbeat_ns": 1}
        connection.execute(sa.insert(schema.recorder_runs), row)
        connection.execute(sa.insert(schema.journal), {"id": 1, "exchange_id": 1, "side": "response", "chunks": b"", "content": b""})
    clear(talks, Wanted())
    with talks.engine.connect() as connection:
        assert connection.scalars(sa.select(schema.recorder_runs.c.id)).all() == [50]  # idle, or dead: that cannot be seen from here
        assert not connection.scalar(sa.select(sa.func.count()).select_from(schema.journal))


def test_references_from_what_stays_are_let_go(talks: Trace) -> None:
    with talks.engine.begin() as connection:
        connection.execute(sa.update(schema.calls).where(schema.calls.c.exchange_id == 1).values(retry_of=4))
        connection.execute(sa.update(schema.threads).where(schema.threads.c.id == 1).values(parent_thread_id=2, parent_exchange_id=5))
    clear(talks, Wanted(sessions=[2]))
    with talks.engine.connect() as connection:
        assert connection.execute(sa.select(schema.threads.c.parent_thread_id, schema.threads.c.parent_exchange_id)).first() == (None, None)
        assert connection.scalar(sa.select(schema.calls.c.retry_of).where(schema.calls.c.exchange_id == 1)) is None
    assert verify(talks).is_whole


def test_recorders_go_on_beside_it_and_lose_nothing(tmp_path: Path) -> None:
    with Trace.open(tmp_path / "a.trace", create=True) as trace:
        put(trace, *chats(*range(1, 60), turns=6))
        told: list[str] = []
        with closing(Writer(trace, wire.split, flush_interval_s=0.01, on_loss=told.append)) as writer:
            stop = threading.Event()
            recorded = threading.Thread(target=_record_until, args=(writer, stop))
            recorded.start()
            result = clear(trace, Wanted(before_ns=recorded_chats.START_NS + DAY_NS))
            stop.set()
            recorded.join(30)
        assert result.deleted.sessions == 59
        assert (told, writer.lost) == ([], 0)
        whole = verify(trace)
        assert whole.is_whole
        assert whole.exchanges == sum(1 for _ in exchanges.listing(trace)) > 0


def _record_until(writer: Writer, stop: threading.Event) -> None:
    """Sessions that begin as deleted ones did: they share what is being collected."""
    number = 0
    while not stop.is_set():
        number += 1
        fields = _fields(recorded_chats.exchange(1 + number % 59, 1 + number % 6)) | {"started_ns": time.time_ns()}
        writer.put(Exchange(**fields))  # type: ignore[arg-type]
        stop.wait(0.001)


def test_reading_beside_it_leaves_out_what_was_deleted(talks: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions.forget(talks)
    load: Callable[..., Iterator[exchanges.Framed]] = exchanges.load_framed

    def deleting(trace: Trace, wanted: tuple[ExchangeId, ...]) -> Iterator[exchanges.Framed]:
        found = list(load(trace, wanted))
        if len(wanted) == 12:
            with trace.engine.connect() as connection:
                connection.exec_driver_sql("DELETE FROM exchanges WHERE id IN (4, 5)")
                connection.commit()
        return iter(found)

    monkeypatch.setattr(exchanges, "load_framed", deleting)
    reading.catch_up(talks)
    assert counts(talks)["calls"] == counts(talks)["trails"] == 10
    assert RunId(1) not in [run.id for run in runs.listing(talks)]


def test_a_deletion_that_is_broken_off_leaves_a_whole_trace_and_ends_later(talks: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.pace._FIRST", 1)
    monkeypatch.setattr("storage.pace._FEWEST", 1)
    monkeypatch.setattr("storage.pace.WORK_S", 0.0)
    steps = iter(range(2))

    def killed(seconds: float) -> None:
        next(steps)

    monkeypatch.setattr("storage.pace.time.sleep", killed)
    with pytest.raises((StopIteration, RuntimeError)):
        clear(talks, Wanted(sessions=[2, 3]))
    assert verify(talks).is_whole
    assert 0 < len(exchanges.listing(talks, sessions=[2])) < 3
    monkeypatch.undo()
    clear(talks, Wanted(sessions=[2, 3]))
    assert ids(talks) == [1, 4]
    assert verify(talks).is_whole
