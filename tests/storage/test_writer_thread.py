"""The writer: exchanges told in pieces come back whole, short ones leave no trace of the journal, trouble is counted and told."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from storage import exchanges, runs, schema
from storage.errors import StorageFullError, TraceError
from storage.exchanges import listing, load
from storage.records import (
    Arrival,
    Element,
    Exchange,
    ExchangeId,
    Failure,
    FailureKind,
    Origin,
    Replayed,
    Request,
    Split,
    State,
)
from storage.steps import ROW_BYTES, response_size
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer

type Make = Callable[..., Exchange]


def halves(request: Request) -> Split | None:
    """A splitter that knows no dialect: two elements, the second begins at the middle."""
    middle = len(request.body) // 2
    return Split(request.body, (Element("message", 0, middle), Element("message", middle, len(request.body)))) if middle else None


def rows(trace: Trace, table: sa.Table) -> int:
    with trace.engine.connect() as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def begun(exchange: Exchange) -> Exchange:
    """As it was when only its head was known."""
    return replace(exchange, request=replace(exchange.request, body=b""), sent_ns=None, response=None, ended_ns=None)


def waiting(exchange: Exchange) -> Exchange:
    """As it was when its request had been sent."""
    return replace(exchange, response=None, ended_ns=None)


def answering(exchange: Exchange) -> Exchange:
    """As it was when the head of the answer was there."""
    assert exchange.response
    return replace(exchange, response=replace(exchange.response, arrivals=()), ended_ns=None)


def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Waits for something that another thread does."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never happened"
        time.sleep(0.01)


@contextmanager
def writing(trace: Trace, **settings: Any) -> Iterator[Writer]:
    writer = Writer(trace, settings.pop("splitter", halves), **settings)
    try:
        yield writer
    finally:
        with suppress(TraceError, StorageFullError):
            writer.close(5)


def test_whole_exchanges_come_back(trace: Trace, make_exchange: Make) -> None:
    """Every field, and an id for each in order."""
    failure = Failure(kind=FailureKind.CLIENT_LEFT, message="the client left", at_ns=39)
    origin = Origin(listener="127.0.0.1:1", connection="c1", client_pid=7, client_command="agent", label="mine")
    told = [
        make_exchange(1),
        make_exchange(2, failure=failure, origin=origin),
        make_exchange(3, response=None),
        make_exchange(4, origin=origin, own_ns=1_200_000, stall_ns=0),
    ]
    with writing(trace) as writer:
        for exchange in told:
            writer.put(exchange)
        writer.flush()
        assert list(exchanges.load_many(trace, [ExchangeId(number) for number in (4, 1, 2, 3)])) == [
            replace(told[number - 1], id=ExchangeId(number)) for number in (4, 1, 2, 3)
        ]
        assert rows(trace, schema.origins) == 2
    assert verify(trace).problems == ()


def test_an_exchange_told_in_pieces(trace: Trace, make_exchange: Make) -> None:
    """It can be read all the while, and its final form is that of one told at once."""
    whole = make_exchange(5)
    assert whole.response
    with writing(trace, flush_interval_s=0.01) as writer:
        ticket = writer.begin(begun(whole))
        writer.request_piece(ticket, whole.request.body[:7])
        until(lambda: [row.request_bytes for row in listing(trace)] == [7])
        assert exchanges.request_body(trace, ExchangeId(1)) == whole.request.body[:7]
        writer.request_piece(ticket, whole.request.body[7:])
        writer.request_complete(ticket, waiting(whole))
        until(lambda: listing(trace)[0].request_bytes == len(whole.request.body))
        assert load(trace, ExchangeId(1)) == replace(waiting(whole), id=ExchangeId(1))
        writer.response_head(ticket, answering(whole))
        writer.arrival(ticket, whole.response.arrivals[0])
        until(lambda: listing(trace)[0].chunks == 1)
        row = listing(trace)[0]
        assert (row.state, row.status, row.ended_ns, row.response_bytes) == ("in_flight", 200, None, len(whole.response.arrivals[0].data))
        assert load(trace, ExchangeId(1)).response == replace(whole.response, arrivals=whole.response.arrivals[:1])
        writer.arrival(ticket, whole.response.arrivals[1])
        writer.finish(ticket, whole)
        writer.flush()
        assert load(trace, ExchangeId(1)) == replace(whole, id=ExchangeId(1))
        assert exchanges.chunks(trace, ExchangeId(1)) == tuple((each.at_ns, len(each.data)) for each in whole.response.arrivals)
        assert rows(trace, schema.journal) == 0
        assert verify(trace).problems == ()


def test_short_exchanges_never_touch_the_journal(trace: Trace, make_exchange: Make) -> None:
    """One that begins and ends within an interval is written once, in its final form."""
    statements: list[str] = []
    sa.event.listen(trace.engine, "before_cursor_execute", lambda *event: statements.append(event[2]))
    whole = make_exchange(3)
    assert whole.response
    with writing(trace, flush_interval_s=0.5) as writer:
        ticket = writer.begin(begun(whole))
        writer.request_complete(ticket, waiting(whole))
        writer.response_head(ticket, answering(whole))
        for arrival in whole.response.arrivals:
            writer.arrival(ticket, arrival)
        writer.finish(ticket, whole)
        writer.flush()
        assert load(trace, ExchangeId(1)) == replace(whole, id=ExchangeId(1))
    assert not any("INSERT INTO journal" in statement or "UPDATE exchanges" in statement for statement in statements)


def test_an_upload_that_was_refused_keeps_what_came(trace: Trace, make_exchange: Make) -> None:
    """The request told as complete and the one told at the end may differ: the end is right."""
    whole = make_exchange(3)
    with writing(trace, flush_interval_s=0.01) as writer:
        ticket = writer.begin(begun(whole))
        writer.request_complete(ticket, waiting(whole))
        until(lambda: rows(trace, schema.exchanges) == 1)
        cut = replace(whole, request=replace(whole.request, body=whole.request.body[:20]))
        writer.finish(ticket, cut)
        writer.flush()
        assert load(trace, ExchangeId(1)).request.body == whole.request.body[:20]


def test_equal_bodies_are_stored_once(trace: Trace, make_exchange: Make) -> None:
    """A retry costs a row, not a body; an empty body is a body too."""
    with writing(trace) as writer:
        for _ in range(3):
            writer.put(make_exchange(3))
        writer.put(make_exchange(3, request=replace(make_exchange(3).request, body=b"")))
        writer.flush()
    assert rows(trace, schema.bodies) == 3
    assert [row.request_bytes for row in listing(trace)][-1] == 0


def test_encoded_requests_are_kept_both_ways(trace: Trace, make_exchange: Make, make_body: Callable[..., bytes]) -> None:
    """The bytes on the wire come back, and the tree sees the text."""
    text = make_body(4)
    with writing(trace, splitter=lambda _: Split(text, (Element("message", 3, 40), Element("message", 41, 80)))) as writer:
        writer.put(make_exchange(1, request=replace(make_exchange(1).request, body=b"\x1f\x8b pretend that this is gzip")))
        writer.flush()
        assert exchanges.request_body(trace, ExchangeId(1)) == b"\x1f\x8b pretend that this is gzip"
        with trace.engine.connect() as connection:
            row = connection.execute(sa.select(schema.exchanges)).one()
            leaf = connection.scalar(sa.select(schema.bodies.c.leaf_id).where(schema.bodies.c.id == row.request_decoded_body_id))
        assert leaf == 2
        assert verify(trace).problems == ()


def broken(_: Request) -> Split | None:
    raise RuntimeError("a reader's bug")


@pytest.mark.parametrize(
    "splitter",
    [
        broken,
        lambda request: Split(request.body, ()),
        lambda request: Split(request.body, (Element("m", 5, 2),)),
        lambda request: Split(request.body, (Element("m", 0, 5), Element("m", 2, 9))),
        lambda request: Split(request.body, (Element("m", 0, 10**9),)),
    ],
)
def test_odd_splits_are_kept_whole(trace: Trace, make_exchange: Make, splitter: Callable[[Request], Split | None]) -> None:
    """Whatever a splitter says, the body comes back."""
    with writing(trace, splitter=splitter) as writer:
        writer.put(make_exchange(2))
        writer.flush()
    assert load(trace, ExchangeId(1)) == make_exchange(2, id=ExchangeId(1))
    assert verify(trace).problems == ()


def test_replays_belong_to_their_run(trace: Trace, make_exchange: Make) -> None:
    """Put at once or told in pieces; listed with their run only, in the place of what they repeat."""
    with writing(trace) as writer:
        writer.put(make_exchange(1))
        writer.flush()
        run = runs.create(trace, target="http://x", settings={"a": [1]}, started_ns=5)
        writer.put(make_exchange(2), Replayed(run_id=run.id, source_exchange=ExchangeId(1), copy=0, ready_ns=99))
        ticket = writer.begin(begun(make_exchange(3)))
        writer.finish(ticket, make_exchange(3), Replayed(run_id=run.id, source_exchange=ExchangeId(1), copy=1, ready_ns=101))
        writer.flush()
    assert [row.id for row in listing(trace)] == [1]
    assert [(row.id, row.run, row.source_exchange, row.copy, row.ready_ns) for row in listing(trace, runs=[run.id])] == [
        (2, 1, 1, 0, 99),
        (3, 1, 1, 1, 101),
    ]
    assert [row.id for row in listing(trace, everything=True)] == [1, 2, 3]


def test_a_full_queue_loses_and_tells(trace: Trace, make_exchange: Make) -> None:
    """The caller is never held up: what does not fit is counted, what was begun is cut short, the rest is kept."""
    said: list[str] = []
    held = threading.Event()
    entered = threading.Event()

    def slow(_: Request) -> None:
        entered.set()
        held.wait(10)

    with writing(trace, splitter=slow, queue_bytes=20_000, flush_interval_s=0.01, on_loss=said.append) as writer:
        open_ticket = writer.begin(begun(make_exchange(1)))
        until(lambda: rows(trace, schema.exchanges) == 1)
        writer.put(make_exchange(2))
        assert entered.wait(10)
        for _ in range(100):
            writer.put(make_exchange(3))
        lost = writer.lost
        assert 50 < lost < 100
        writer.arrival(open_ticket, Arrival(7, b"x" * 30_000))
        writer.arrival(open_ticket, Arrival(8, b"more of a lost exchange"))
        assert writer.lost == lost + 1
        held.set()
        writer.finish(open_ticket, make_exchange(1))
        with pytest.raises(TraceError, match="could not be kept"):
            writer.flush()
        found = listing(trace)
        assert len(found) == 102 - lost
        assert found[0].state == "interrupted"
        assert load(trace, ExchangeId(1)).failure == Failure(
            kind=FailureKind.INTERRUPTED, message="the queue of the trace writer is full", at_ns=0
        )
        writer.put(make_exchange(9))
        writer.flush()
        assert len(listing(trace)) == 103 - lost
    assert said[0] == f"{lost + 1} exchanges could not be kept: the queue of the trace writer is full"


def test_a_body_larger_than_the_queue_is_kept(trace: Trace, make_exchange: Make) -> None:
    """When nothing else waits."""
    with writing(trace, queue_bytes=1000) as writer:
        writer.put(make_exchange(500))
        writer.flush()
    assert load(trace, ExchangeId(1)).request == make_exchange(500).request


def test_a_locked_database_is_waited_for(tmp_path: Path, make_exchange: Make) -> None:
    """Another program holds the lock for longer than SQLite waits: told once, tried again, nothing lost."""
    said: list[str] = []
    path = tmp_path / "locked.trace"
    with Trace.open(path, create=True) as trace:
        sa.event.listen(trace.engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout = 1"))
        trace.engine.dispose()
        with writing(trace, flush_interval_s=0.01, on_loss=said.append) as writer:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            writer.put(make_exchange(1))
            until(lambda: bool(said))
            with pytest.raises(TraceError, match="locked"):
                writer.flush(0.3)
            other.execute("ROLLBACK")
            other.close()
            writer.flush()
            assert writer.lost == 0
        assert len(listing(trace)) == 1
    assert said == ["the trace cannot be written: database is locked"]


def test_a_full_disk_keeps_what_was_acknowledged(trace: Trace, make_exchange: Make) -> None:
    """Said once; flush and close say so too; when there is space again, recording goes on."""
    said: list[str] = []
    allowed = 0

    def limit(raw: sqlite3.Connection, _: object) -> None:
        raw.execute(f"PRAGMA max_page_count = {allowed or 2**30}")

    sa.event.listen(trace.engine, "connect", limit)
    with writing(trace, splitter=lambda _: None, flush_interval_s=0.01, on_loss=said.append) as writer:
        writer.put(make_exchange(1))
        writer.flush()
        with trace.engine.connect() as connection:
            allowed = int(connection.exec_driver_sql("PRAGMA page_count").scalar() or 0) + 2
        trace.engine.dispose()
        for number in range(2, 30):
            body = random.Random(number).randbytes(10_000)
            writer.put(make_exchange(number, request=replace(make_exchange(1).request, body=body)))
        with pytest.raises(StorageFullError, match="disk is full"):
            writer.flush()
        assert load(trace, ExchangeId(1)) == make_exchange(1, id=ExchangeId(1))
        assert writer.lost == 0
        allowed = 0
        trace.engine.dispose()
        writer.flush()
        assert len(listing(trace)) == 29
    assert len(said) == 1
    assert "full" in said[0]
    assert verify(trace).problems == ()


def test_closing_on_a_full_disk_counts_what_is_lost(trace: Trace, make_exchange: Make) -> None:
    """And says it, and ends."""
    said: list[str] = []
    sa.event.listen(trace.engine, "connect", lambda raw, _: raw.execute("PRAGMA max_page_count = 1"))
    writer = Writer(trace, halves, flush_interval_s=0.01, on_loss=said.append)
    trace.engine.dispose()
    for number in range(3):
        body = random.Random(number).randbytes(300_000)
        writer.put(make_exchange(number, request=replace(make_exchange(1).request, body=body)))
    with pytest.raises(StorageFullError):
        writer.close(10)
    assert writer.lost == 3
    assert said[-1] == "3 exchanges could not be kept"
    assert listing(trace) == []


def test_closing_on_a_locked_trace_comes_to_an_end(tmp_path: Path, make_exchange: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the time that a caller would wait for a slow disk, and says what is lost."""
    monkeypatch.setattr("storage.writer._LONGEST_TROUBLE_S", 0.2)
    said: list[str] = []
    path = tmp_path / "locked.trace"
    with Trace.open(path, create=True) as trace:
        sa.event.listen(trace.engine, "connect", lambda raw, _: raw.execute("PRAGMA busy_timeout = 1"))
        trace.engine.dispose()
        writer = Writer(trace, halves, flush_interval_s=0.01, on_loss=said.append)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writer.put(make_exchange(1))
        failures: list[BaseException] = []
        closing = threading.Thread(target=lambda: failures.extend(failure_of(lambda: writer.close(3600))))
        closing.start()
        closing.join(20)
        assert not closing.is_alive()
        assert "locked" in str(failures)
        other.close()
    assert writer.lost == 1
    assert said == ["the trace cannot be written: database is locked", "1 exchanges could not be kept"]


def failure_of(call: Callable[[], None]) -> list[BaseException]:
    """What a call raises, at most one."""
    try:
        call()
    except TraceError as error:
        return [error]
    return []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_trace_that_is_taken_away_is_told(tmp_path: Path, make_exchange: Make, replaced: bool) -> None:
    """SQLite would write on into a file without a name; what comes while it is away waits for it to come back."""
    said: list[str] = []
    path, away = tmp_path / "a.trace", tmp_path / "away.trace"
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, halves, flush_interval_s=0.01, on_loss=said.append)
        path.rename(away)
        if replaced:
            path.write_bytes(b"")
        writer.put(make_exchange(1))
        until(lambda: bool(said))
        away.rename(path)
        writer.put(make_exchange(2))
        writer.flush()
        for beside in tmp_path.glob("a.trace*"):
            beside.unlink()
        writer.put(make_exchange(3))
        with pytest.raises(TraceError, match="deleted, moved or replaced"):
            writer.close()
    assert writer.lost == 1
    assert said == [said[0], said[0], "1 exchanges could not be kept"]
    assert "deleted, moved or replaced" in said[0]


def test_one_exchange_that_cannot_be_stored_takes_no_other_with_it(trace: Trace, make_exchange: Make) -> None:
    """A value that the database refuses is lost alone; a listener that raises does not stop the writer."""
    said: list[str] = []

    def listen(text: str) -> None:
        said.append(text)
        raise RuntimeError("a listener's bug")

    with writing(trace, on_loss=listen) as writer:
        writer.put(make_exchange(1))
        writer.put(make_exchange(2, started_ns=2**70))
        writer.put(make_exchange(3))
        with pytest.raises(TraceError, match="1 exchanges could not be kept"):
            writer.flush()
        assert writer.lost == 1
        assert [load(trace, row.id).request for row in listing(trace)] == [make_exchange(1).request, make_exchange(3).request]
    assert len(said) == 1
    assert "could not be kept" in said[0]


def test_closing_ends_what_is_open_as_interrupted(trace: Trace, make_exchange: Make) -> None:
    """With what had come, in its final form."""
    whole = make_exchange(1)
    assert whole.response
    writer = Writer(trace, halves)
    ticket = writer.begin(begun(whole))
    writer.request_complete(ticket, waiting(whole))
    writer.response_head(ticket, answering(whole))
    writer.arrival(ticket, whole.response.arrivals[0])
    writer.close()
    found = load(trace, ExchangeId(1))
    assert found.failure
    assert (found.failure.kind, found.failure.at_ns, found.ended_ns) == (FailureKind.INTERRUPTED, 20, 20)
    assert found.request == whole.request
    assert found.response == replace(whole.response, arrivals=whole.response.arrivals[:1])
    assert rows(trace, schema.journal) == 0
    assert listing(trace)[0].state == State.INTERRUPTED


def test_failures_are_the_states_of_the_wire(trace: Trace, make_exchange: Make) -> None:
    """Before any reader has looked."""
    with writing(trace) as writer:
        for kind in FailureKind:
            writer.put(make_exchange(1, failure=Failure(kind=kind, message="", at_ns=1)))
        writer.flush()
    assert [row.state for row in listing(trace)] == [
        "client_aborted",
        "upstream_aborted",
        "truncated",
        "error",
        "error",
        "interrupted",
    ]


def test_what_waits_is_counted_once(trace: Trace, make_exchange: Make) -> None:
    """Pieces of an upload make way for the whole; nothing is left when all is stored."""
    whole = make_exchange(400)
    body = whole.request.body
    with writing(trace, flush_interval_s=60) as writer:
        ticket = writer.begin(begun(whole))
        for at in range(0, len(body), 1000):
            writer.request_piece(ticket, body[at : at + 1000])
        assert writer._waiting_bytes == ROW_BYTES + len(body)
        writer.request_complete(ticket, waiting(whole))
        assert writer._waiting_bytes == ROW_BYTES + len(body)
        writer.arrival(ticket, Arrival(20, b"x" * 5000))
        assert writer._waiting_bytes > ROW_BYTES + len(body) + 5000
        writer.flush()
        assert writer._waiting_bytes == 0
        writer.arrival(ticket, Arrival(21, b"x" * 5000))
        writer.finish(ticket, whole)
        assert writer._waiting_bytes == ROW_BYTES + len(body) + response_size(whole)
        writer.flush()
        assert writer._waiting_bytes == 0
    assert load(trace, ExchangeId(1)) == replace(whole, id=ExchangeId(1))
