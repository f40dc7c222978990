"""Reading a trace: once or bit by bit, by one or by two, the same comes out."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import recorded_chats
from identity_traffic import START_NS, Wire, assistant, calls, result, user

from storage import exchanges, places, runs, sessions, signal_rows, trails
from storage.records import Arrival, Exchange, ExchangeId, Placement, Replayed, Response, State
from storage.trace import Trace
from storage.writer import Writer
from tracer import reading, wire


def conversation() -> list[Exchange]:
    """Two sessions with a sub-agent, in order of start."""
    made = Wire()
    spawn = ("call_spawn_0001", "spawn_agent", {"task": "Count all the files"})
    opening, helper = [user("Use helpers")], [user("Count all the files")]
    found = [
        made.exchange(opening, calls(spawn)),
        made.exchange(helper, assistant("There are seven files.")),
        made.exchange([user("Another thing")], assistant("Yes, of course.")),
        made.exchange([*opening, calls(spawn), result("call_spawn_0001", "There are seven files.")], assistant("Seven.")),
        made.exchange([user("Another thing"), assistant("Yes, of course."), user("Go on")], assistant("No.")),
    ]
    return [replace(exchange, id=None) for exchange in found]


def write(trace: Trace, some: list[Exchange]) -> None:
    """Stores exchanges as a recorder would."""
    writer = Writer(trace, wire.split)
    for exchange in some:
        writer.put(exchange)
    writer.close()


def placements(trace: Trace) -> list[Placement]:
    """All placements in order of start."""
    return list(places.placements(trace))


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    """A new trace; closed with the interpreter."""
    with Trace.open(tmp_path / "a.trace", create=True) as opened:
        yield opened


def test_everything_is_read_once(trace: Trace) -> None:
    """Sessions, threads, dependencies; a second time there is nothing to do."""
    write(trace, conversation())
    assert reading.catch_up(trace) == 5
    assert reading.catch_up(trace) == 0
    found = placements(trace)
    assert [place.after for place in found] == [(), (1,), (), (1, 2), (3,)]
    assert len({place.session_key for place in found}) == 2
    assert len({place.thread_key for place in found}) == 3
    assert found[1].parent_exchange_id == 1
    trace.close()


def test_bit_by_bit_is_as_at_once(trace: Trace, tmp_path: Path) -> None:
    """Every exchange read by a run of its own, as after restarts of the recorder."""
    for exchange in conversation():
        write(trace, [exchange])
        assert reading.catch_up(trace) == 1
    with Trace.open(tmp_path / "whole.trace", create=True) as whole:
        write(whole, conversation())
        reading.catch_up(whole)
        assert placements(trace) == placements(whole)
    trace.close()


def test_reading_again_from_the_bytes_gives_the_same(trace: Trace) -> None:
    """`reread`: derived rows are dropped and come back equal, ids included."""
    write(trace, conversation())
    reading.catch_up(trace)
    before, rows = placements(trace), exchanges.listing(trace)
    sessions.forget(trace)
    assert list(trails.load(trace, reading.READER_VERSION)) == []
    assert reading.catch_up(trace) == 5
    assert placements(trace) == before
    assert exchanges.listing(trace) == rows
    trace.close()


def test_two_at_once_agree(trace: Trace) -> None:
    """Both read everything; neither fails, and nothing is stored twice."""
    write(trace, conversation())
    failures: list[BaseException] = []

    def read() -> None:
        try:
            with Trace.open(trace.location) as mine:
                reading.catch_up(mine)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    assert [place.after for place in placements(trace)] == [(), (1,), (), (1, 2), (3,)]
    trace.close()


def test_an_exchange_that_ended_late_takes_its_place(trace: Trace) -> None:
    """A long stream is read after what started behind it: numbers move."""
    made = Wire()
    ids = (("x-session-id", "ses_0123456789"),)
    first, late, last = (
        replace(made.exchange([user(text)], assistant("x"), headers=ids), id=None) for text in ("One thing", "Two things", "Three things")
    )
    write(trace, [first, last])
    reading.catch_up(trace)
    write(trace, [late])
    reading.catch_up(trace)
    assert [(place.exchange_id, place.number) for place in placements(trace)] == [(1, 1), (3, 2), (2, 3)]
    trace.close()


def test_a_replay_is_read_and_stands_where_its_source_does(trace: Trace) -> None:
    """It has figures of its own and is no new session."""
    write(trace, conversation())
    reading.catch_up(trace)
    run = runs.create(trace, target="http://other.test", settings={}, started_ns=START_NS)
    writer = Writer(trace, wire.split)
    writer.put(conversation()[0], Replayed(run_id=run.id, source_exchange=ExchangeId(1), copy=0, ready_ns=START_NS))
    writer.close()
    assert reading.catch_up(trace) == 1
    row = exchanges.listing(trace, runs=[run.id])[0]
    assert (row.dialect, row.state, row.session) == ("openai_chat", "complete", 1)
    assert len(placements(trace)) == 5
    assert len(sessions.listing(trace)) == 2
    trace.close()


def test_signals_are_stored_as_found(trace: Trace) -> None:
    """Every raw sign, whatever was chosen."""
    made = Wire()
    headers = (("x-session-id", "ses_1"), ("x-client-request-id", "trap"), ("x-unknown", "no"))
    write(trace, [replace(made.exchange([user("Hello there")], assistant("x"), headers=headers, pid=77), id=None)])
    reading.catch_up(trace)
    found = dict(signal_rows.load(trace)[ExchangeId(1)])
    assert found["header:x-session-id"] == "ses_1"
    assert found["header:x-client-request-id"] == "trap"
    assert found["origin:pid"] == "77"
    assert "header:x-unknown" not in found
    trace.close()


def test_unknown_traffic_is_listed_unread(trace: Trace) -> None:
    """Kind other, no dialect, no session; a whole answer is complete."""
    made = Wire()
    write(trace, [replace(made.exchange([], assistant("x"), path="/api/telemetry"), id=None)])
    assert reading.catch_up(trace) == 1
    row = exchanges.listing(trace)[0]
    assert (row.kind, row.dialect, row.session, row.state) == ("other", None, None, "complete")
    trace.close()


def test_figures_of_a_stream(tmp_path: Path) -> None:
    """Model, tokens, times and stop of a streamed answer, at the reads that brought them."""
    recorded_chats.write(tmp_path / "a.trace", sessions=1, turns=2)
    with Trace.open(tmp_path / "a.trace") as trace:
        row = exchanges.listing(trace)[1]
        assert (row.model, row.kind, row.stop, row.streamed, row.number) == ("gpt-5", "turn", "stop", True, 2)
        assert (row.usage.prompt, row.usage.cached, row.usage.output) == (100, 8, 4)
        assert (row.marks.first_content_ns, row.marks.last_content_ns, row.marks.content_reads) == (14_000_000, 26_000_000, 4)
        assert (row.after, row.gap_ns) == ((1,), 20_000_000)


def test_bodies_the_tree_cannot_hold_are_read_all_the_same(trace: Trace) -> None:
    """A packed body, and one that is no JSON."""
    import gzip

    made = Wire()
    plain = made.exchange([user("Hello there")], assistant("Hi, who are you?"))
    talk = [user("Hello there"), assistant("Hi, who are you?"), user("Nobody")]
    packed = made.exchange(talk, assistant("x"), headers=(("content-encoding", "gzip"),))
    packed = replace(packed, request=replace(packed.request, body=gzip.compress(packed.request.body)))
    broken = made.exchange([], assistant("x"))
    broken = replace(broken, request=replace(broken.request, body=b"\xff{not json"))
    write(trace, [replace(exchange, id=None) for exchange in (plain, packed, broken)])
    assert reading.catch_up(trace) == 3
    found = placements(trace)
    assert found[0].thread_key == found[1].thread_key
    assert found[2].session_key != found[0].session_key
    trace.close()


def test_a_stream_without_its_end_is_truncated(trace: Trace) -> None:
    """A clean close in the middle of a known dialect's stream."""
    exchange = recorded_chats.exchange(1, 1)
    assert exchange.response
    short = replace(exchange, response=replace(exchange.response, arrivals=exchange.response.arrivals[:3]))
    write(trace, [short])
    reading.catch_up(trace)
    row = exchanges.listing(trace)[0]
    assert (row.state, row.abort_by) == (State.TRUNCATED, "upstream")
    trace.close()


def test_an_answer_in_another_language_is_no_failure_of_reading(trace: Trace) -> None:
    """Whatever stands in the answer, the exchange is listed."""
    made = Wire()
    odd = made.exchange([user("Hello there")], assistant("x"))
    answers = [
        b"",
        b"[]",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":{"a":1}}',
        json.dumps({"choices": [{"message": {"tool_calls": [1]}}]}).encode(),
    ]
    some = []
    for place, data in enumerate(answers):
        response = Response(status=200, headers=(("content-type", "application/json"),), headers_at_ns=1, arrivals=(Arrival(2, data),))
        some.append(replace(odd, id=None, started_ns=odd.started_ns + place, response=response))
    write(trace, some)
    assert reading.catch_up(trace) == len(answers)
    assert len(exchanges.listing(trace)) == len(answers)
    trace.close()


def test_a_key_in_an_error_is_masked(tmp_path: Path) -> None:
    """Providers repeat the key that they refuse; what is derived from their words does not."""
    said = b'{"error": {"message": "Incorrect API key provided: sk-proj-abcDEF0123456789abcdef. See your account."}}'
    made = conversation()[0]
    assert made.response is not None
    refused = replace(made.response, status=401, headers=(("content-type", "application/json"),), arrivals=(Arrival(9, said),))
    with Trace.open(tmp_path / "a.trace", create=True) as trace:
        write(trace, [replace(made, response=refused)])
        reading.catch_up(trace)
        (row,) = exchanges.listing(trace)
    assert row.error is not None
    assert "Incorrect API key provided" in row.error
    assert "abcDEF0123456789" not in row.error
