"""Readings and placements as rows: listings add up, ids stay, names stay, what is unknown stays unknown."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from storage import documentation, exchanges, ids, places, reuse_rows, runs, schema, sessions, signal_rows
from storage.errors import NotFoundError
from storage.exchanges import listing, unread
from storage.records import (
    Exchange,
    ExchangeId,
    ExchangeRow,
    Marks,
    Placement,
    Reading,
    Replayed,
    RunId,
    SessionRow,
    State,
    Usage,
)
from storage.reuse_rows import IdealRow
from storage.trace import Trace
from storage.views import VIEWS
from storage.writer import Writer

MARKS = Marks(
    first_byte_ns=20,
    first_content_ns=1_000_020,
    first_output_ns=2_000_020,
    first_text_ns=3_000_000,
    last_content_ns=9_000_020,
    content_reads=4,
)


def reading(number: int, **changes: Any) -> Reading:
    fields: dict[str, Any] = {
        "exchange_id": ExchangeId(number),
        "state": State.COMPLETE,
        "dialect": "anthropic_messages",
        "model": "opus",
        "kind": "turn",
        "streamed": True,
        "stop": "end_turn",
        "usage": Usage(prompt=100, cached=60, output=9),
        "usage_raw": '{"input_tokens":40}',
        "marks": MARKS,
        "signals": (("x-session", "one"), ("agent", "main")),
    }
    return Reading(**(fields | changes))


def placement(which: int, **changes: Any) -> Placement:
    fields: dict[str, Any] = {
        "exchange_id": ExchangeId(which),
        "session_key": "first-session",
        "thread_key": "main",
        "number": which,
        "kind": "turn",
        "client": "claude-code",
        "agent": "main",
        "source": "header",
        "confidence": 1.0,
    }
    return Placement(**(fields | changes))


READINGS = (
    reading(1),
    reading(2, usage=Usage(prompt=200, output=1, reasoning=1)),
    reading(3, model="haiku", usage=Usage(), kind="other"),
    reading(4, state=State.TRUNCATED, abort_by="upstream", error="overloaded", streamed=False),
    reading(5, dialect=None, model=None, kind="other", streamed=None, usage=Usage(), marks=Marks(), signals=()),
)
PLACEMENTS = (
    placement(1),
    placement(2, after=(ExchangeId(1),), gap_ns=77),
    placement(3, kind="title", number=1),
    placement(
        4,
        thread_key="sub",
        agent="explore",
        number=1,
        parent_thread_key="main",
        parent_exchange_id=ExchangeId(2),
        after=(ExchangeId(1), ExchangeId(2)),
        retry_of=ExchangeId(2),
    ),
)


@pytest.fixture
def told(trace: Trace, make_exchange: Callable[..., Exchange]) -> Trace:
    """Five recorded exchanges, all read, four placed."""
    writer = Writer(trace, lambda _: None)
    for number in range(1, 6):
        writer.put(make_exchange(number))
    writer.close()
    sessions.save(trace, READINGS, PLACEMENTS, 1)
    return trace


def test_an_exchange_row_says_all(told: Trace) -> None:
    """Wire, reading and place in one row; values are of the declared types."""
    row = listing(told)[3]
    assert row == ExchangeRow(
        id=ExchangeId(4),
        session=1,
        thread=2,
        agent="explore",
        parent_thread=1,
        number=1,
        kind="turn",
        dialect="anthropic_messages",
        transport="http1",
        method="POST",
        url="https://api.anthropic.com/v1/messages?beta=true",
        model="opus",
        status=200,
        state="truncated",
        abort_by="upstream",
        retry_of=ExchangeId(2),
        started_ns=1_790_000_004_000_000_000,
        ended_ns=40,
        headers_ns=10,
        sent_ns=5,
        marks=MARKS,
        usage=Usage(prompt=100, cached=60, output=9),
        stop="end_turn",
        streamed=False,
        error="overloaded",
        request_bytes=row.request_bytes,
        request_sha256=row.request_sha256,
        response_bytes=24,
        response_sha256=row.response_sha256,
        chunks=2,
        run=None,
        source_exchange=None,
        copy=None,
        ready_ns=None,
        after=(ExchangeId(1), ExchangeId(2)),
        gap_ns=None,
    )
    assert type(row) is ExchangeRow
    assert type(row.marks) is Marks
    assert row.streamed is False
    assert hash(row.usage) == hash(Usage(prompt=100, cached=60, output=9))
    assert replace(row, kind="x").kind == "x"
    with pytest.raises(AttributeError):
        row.kind = "y"  # type: ignore[misc]


def test_what_was_not_read_is_not_known(told: Trace) -> None:
    """Unread and unplaced: None, never 0."""
    row = listing(told)[4]
    assert (row.session, row.thread, row.number, row.model, row.dialect, row.streamed) == (None,) * 6
    assert (row.usage, row.marks, row.after, row.kind) == (Usage(), Marks(), (), "other")


def test_listings_by_session_and_run(told: Trace, make_exchange: Callable[..., Exchange]) -> None:
    """A replay is listed with its run, in the session and thread of what it repeats."""
    run = runs.create(told, target="http://a", settings={}, started_ns=1)
    writer = Writer(told, lambda _: None)
    writer.put(make_exchange(9), Replayed(run_id=run.id, source_exchange=ExchangeId(4), copy=0, ready_ns=1_790_000_008_999_000_000))
    writer.close()
    sessions.save(told, [reading(6, kind="other")], [], 1)
    assert [row.id for row in listing(told, sessions=[1])] == [1, 2, 3, 4]
    assert [row.id for row in listing(told, sessions=[2])] == []
    (replayed,) = listing(told, runs=[run.id])
    assert (replayed.session, replayed.thread, replayed.parent_thread, replayed.agent, replayed.number) == (1, 2, 1, "explore", 1)
    assert (replayed.kind, replayed.run, replayed.source_exchange) == ("turn", run.id, 4)
    assert [row.id for row in listing(told, sessions=[1], runs=[run.id])] == [1, 2, 3, 4, 6]
    with told.engine.connect() as connection:
        row = connection.execute(sa.text("SELECT * FROM turn_latency WHERE run IS NOT NULL")).one()
        assert (row.exchange, row.session, row.thread, row.number, row.kind, row.lag_ms) == (6, 1, 2, 1, "turn", 1.0)


def test_a_session_row_adds_up(told: Trace) -> None:
    """Sums over what is known; models in order of first use."""
    reuse_rows.save(
        told, [IdealRow(exchange_id=ExchangeId(n), ledger_version=1, prompt_tokens=100, ideal_tokens=t) for n, t in ((1, 0), (2, 90))]
    )
    reuse_rows.save(told, [IdealRow(exchange_id=ExchangeId(3), ledger_version=1, prompt_tokens=None, ideal_tokens=None)])
    expected = SessionRow(
        id=1,
        key="first-session",
        name=None,
        client="claude-code",
        started_ns=1_790_000_001_000_000_000,
        ended_ns=1_790_000_004_000_000_040,
        threads=2,
        turns=3,
        side_calls=1,
        models=("opus", "haiku"),
        prompt_tokens=400,
        cached_tokens=120,
        output_tokens=19,
        ideal_share=0.45,
    )
    assert sessions.listing(told) == [expected]
    assert sessions.listing(told, ids=[1]) == [expected]
    assert sessions.listing(told, ids=[2]) == []
    with told.engine.connect() as connection:
        row = connection.execute(sa.text("SELECT * FROM session_overview")).one()
    assert (row.session, row.threads, row.turns, row.side_calls, row.prompt_tokens, row.ideal_share) == (1, 2, 3, 1, 400, 0.45)
    assert row.duration_s == pytest.approx(3.00000004)


def test_a_session_of_unknown_figures(told: Trace) -> None:
    """None when none is known."""
    sessions.save(told, [reading(5, usage=Usage(), model=None)], [placement(5, session_key="second", client=None)], 1)
    row = sessions.listing(told, ids=[2])[0]
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens, row.ideal_share, row.models, row.client) == (
        None,
        None,
        None,
        None,
        (),
        None,
    )


def test_reading_again_keeps_ids_places_and_names(told: Trace) -> None:
    """A new reading replaces numbers and leaves the place; after `forget` the same keys get the same ids."""
    sessions.rename(told, 1, "my session")
    sessions.save(told, [reading(4, usage=Usage(prompt=7))], [], 2)
    row = listing(told)[3]
    assert (row.usage, row.thread, row.retry_of, row.state) == (Usage(prompt=7), 2, 2, "complete")
    assert unread(told, 2) == [1, 2, 3, 5]
    assert unread(told, 1) == [4]
    sessions.forget(told)
    assert sessions.listing(told) == []
    assert unread(told, 2) == [1, 2, 3, 4, 5]
    assert listing(told)[3].state == "complete"
    sessions.save(told, READINGS[3:4], [placement(4, session_key="new", thread_key="sub"), PLACEMENTS[3]], 2)
    sessions.save(told, READINGS[:3], PLACEMENTS[:3], 2)
    found = sessions.listing(told)
    assert [(each.id, each.name, each.threads) for each in found] == [(1, "my session", 2)]
    assert [each.thread for each in listing(told)[:4]] == [1, 1, 1, 2]


def test_placements_come_back_as_saved(told: Trace) -> None:
    """Identity goes on from them."""
    assert list(places.placements(told)) == list(PLACEMENTS)
    moved = placement(1, session_key="other", agent="renamed", client=None)
    sessions.save(told, [], [moved], 1)
    assert next(places.placements(told)) == moved
    sessions.save(told, [], [placement(1, client="codex")], 1)
    assert sessions.listing(told)[0].client == "codex"


def test_signals_come_back_and_are_stored_once(told: Trace) -> None:
    """Equal ones share a row."""
    assert signal_rows.load(told) == {ExchangeId(n): (("x-session", "one"), ("agent", "main")) for n in (1, 2, 3, 4)}
    assert set(signal_rows.load(told, [ExchangeId(2), ExchangeId(5)])) == {2}
    with told.engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.signal_values)) == 2
    sessions.save(told, [reading(2, signals=(("b", "2"),))], [], 1)
    assert signal_rows.load(told, [ExchangeId(2)]) == {ExchangeId(2): (("b", "2"),)}


def test_ideal_rows_come_back(told: Trace) -> None:
    """Each replaces what was there for its exchange."""
    first = [IdealRow(exchange_id=ExchangeId(n), ledger_version=1, prompt_tokens=n, ideal_tokens=n, broken_tokens=0) for n in (1, 2)]
    reuse_rows.save(told, first)
    changed = replace(first[1], ledger_version=2, ideal_tokens=None)
    reuse_rows.save(told, [changed])
    reuse_rows.save(told, [])
    assert reuse_rows.load(told) == {ExchangeId(1): first[0], ExchangeId(2): changed}
    assert reuse_rows.load(told, [ExchangeId(2), ExchangeId(3)]) == {ExchangeId(2): changed}


def test_turn_latency_is_what_metrics_define(told: Trace) -> None:
    """Milliseconds from the start; nothing for what did not complete."""
    with told.engine.connect() as connection:
        rows = connection.execute(sa.text("SELECT * FROM turn_latency")).all()
        reuse = connection.execute(sa.text("SELECT exchange, prompt_tokens, cached_tokens, elements FROM prefix_reuse")).all()
    assert [row.exchange for row in rows] == [1, 2, 3, 4]
    first = rows[0]
    assert (first.ttft_ms, first.ttfo_ms, first.e2e_ms, first.itl_ms) == (1.00002, 2.00002, 9.00002, 1.0)
    assert (first.ttfb_ms, first.close_ms, first.lag_ms) == (2e-5, 4e-5, None)
    assert rows[1].itl_ms is None
    assert (rows[3].ttft_ms, rows[3].e2e_ms, rows[3].state) == (None, None, "truncated")
    assert [tuple(row) for row in reuse] == [(1, 100, 60, None), (2, 200, None, None), (3, None, None, None), (4, 100, 60, None)]


def test_the_views_have_the_columns_they_document(trace: Trace) -> None:
    """In name and order."""
    with trace.engine.connect() as connection:
        for view in VIEWS:
            assert tuple(connection.execute(sa.text(f"SELECT * FROM {view.name}")).keys()) == tuple(name for name, _ in view.columns)


def test_the_schema_reference_is_true() -> None:
    """docs/reference/schema.md is what the schema says; every table and column says something."""
    path = Path(__file__).parents[2] / "docs" / "reference" / "schema.md"
    assert path.read_text() == documentation.markdown(), "make it again: python -m storage.documentation > docs/reference/schema.md"
    assert all(table.comment for table in schema.metadata.tables.values())


def test_runs_come_back(trace: Trace) -> None:
    """Settings and summary are JSON; the summary is unknown until the run has ended."""
    first = runs.create(trace, target="http://a", settings={"gaps": "keep", "edits": [1, None]}, started_ns=5)
    second = runs.create(trace, target="http://b", settings={}, started_ns=3)
    assert (first.id, first.ended_ns, first.summary, first.settings) == (1, None, None, {"gaps": "keep", "edits": [1, None]})
    runs.finish(trace, first.id, ended_ns=9, summary={"turns": 2})
    assert runs.load(trace, first.id) == replace(first, ended_ns=9, summary={"turns": 2})
    assert [run.id for run in runs.listing(trace)] == [second.id, first.id]
    for act in (lambda: runs.load(trace, RunId(7)), lambda: runs.finish(trace, RunId(7), ended_ns=1, summary={})):
        with pytest.raises(NotFoundError, match="no run r7"):
            act()
    with pytest.raises(NotFoundError, match="no session s7"):
        sessions.rename(trace, 7, "x")


@pytest.mark.parametrize(
    ("typed", "kinds", "found"),
    [
        ("e3", "ser", ("e", 3)),
        ("3", "e", ("e", 3)),
        ("s1", "ser", ("s", 1)),
        ("t2", "t", ("t", 2)),
        ("r1", "sr", ("r", 1)),
        ("first-session", "ser", ("s", 1)),
        ("first", "s", ("s", 1)),
        ("my name", "s", ("s", 1)),
        ("latest", "ser", ("s", 1)),
        ("latest", "r", ("r", 1)),
        ("latest", "e", ("e", 5)),
    ],
)
def test_what_people_type(told: Trace, typed: str, kinds: str, found: tuple[str, int]) -> None:
    """Ids, names, keys, beginnings of keys, `latest`."""
    runs.create(told, target="http://a", settings={}, started_ns=1)
    sessions.rename(told, 1, "my name")
    assert ids.parse(told, typed, kinds) == found
    assert ids.text(*found) == f"{found[0]}{found[1]}"


@pytest.mark.parametrize(
    ("typed", "kinds", "hint"),
    [
        ("e9", "ser", "did you mean"),
        ("s1", "r", "playhead runs"),
        ("frist-session", "s", "first-session"),
        ("zzz", "e", "list them: playhead exchanges"),
        ("latest", "r", "playhead runs"),
        ("", "s", "playhead sessions"),
        ("e99999999999999999999", "e", "playhead exchanges"),
    ],
)
def test_what_is_not_there(told: Trace, typed: str, kinds: str, hint: str) -> None:
    """One line, and near candidates where there are any."""
    with pytest.raises(NotFoundError) as caught:
        ids.parse(told, typed, kinds)
    assert hint in str(caught.value.hint)


def test_an_ambiguous_beginning_names_the_candidates(told: Trace) -> None:
    """Rather than choosing one."""
    sessions.save(told, [], [placement(5, session_key="first-of-all")], 1)
    with pytest.raises(NotFoundError, match="several sessions") as caught:
        ids.parse(told, "first-")
    assert caught.value.hint == "say which: s1, s2"


def test_an_exchange_that_is_not_there(trace: Trace) -> None:
    """By its id."""
    for read in (exchanges.load, exchanges.request_body, exchanges.response_body, exchanges.chunks):
        with pytest.raises(NotFoundError, match="no exchange e9"):
            read(trace, ExchangeId(9))


def test_a_session_answers_to_the_label_it_was_recorded_under(told: Trace) -> None:
    """`/s/NAME/` makes the key `label:NAME`: people type the name."""
    sessions.save(told, [], [placement(1, session_key="label:mytask", client=None)], 1)
    assert ids.parse(told, "mytask", "s") == ids.parse(told, "label:mytask", "s")
