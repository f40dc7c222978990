"""A plan sends what was recorded, in the dependence in which it was recorded."""

from dataclasses import replace

import pytest

from replay.plan import plan
from storage.records import ExchangeId, ExchangeRow, Marks, Usage

MS = 1_000_000
START = 1_700_000_000_000_000_000


def row(number: int, start_ms: int, end_ms: int, after: tuple[int, ...] = (), **changed: object) -> ExchangeRow:
    """A recorded, complete turn of session 1."""
    made = ExchangeRow(
        id=ExchangeId(number), session=1, thread=1, agent="main", parent_thread=None, number=number, kind="turn", dialect="openai_chat",
        transport="http1", method="POST", url="https://api.example/v1/chat/completions", model="m", status=200, state="complete",
        abort_by=None, retry_of=None, started_ns=START + start_ms * MS, ended_ns=(end_ms - start_ms) * MS, headers_ns=MS, sent_ns=0,
        marks=Marks(), usage=Usage(prompt=100, output=10), stop="stop", streamed=True, error=None, request_bytes=10,
        request_sha256=f"{number:064x}", response_bytes=20, response_sha256="0" * 64, chunks=3, run=None, source_exchange=None, copy=None,
        ready_ns=None, after=tuple(ExchangeId(other) for other in after), gap_ns=None,
    )  # fmt: skip
    return replace(made, **changed)  # type: ignore[arg-type]


def shape(rows: list[ExchangeRow], **options: object) -> list[tuple[int, tuple[int, ...], int]]:
    """(source, after, gap ms) of every planned turn."""
    return [(t.source, t.after, t.gap_ns // MS) for t in plan(rows, **options).turns]  # type: ignore[arg-type]


def test_a_turn_waits_for_its_predecessor_and_the_recorded_gap() -> None:
    """A gap is from the end of the stream, never from its start."""
    assert shape([row(1, 0, 100), row(2, 130, 200, (1,)), row(3, 250, 300, (2,))]) == [(1, (), 0), (2, (1,), 30), (3, (2,), 50)]


def test_a_join_waits_for_the_last_of_its_sub_agents() -> None:
    """Two sub-agents run side by side; the gap of the parent's next turn counts from the later end."""
    rows = [row(1, 0, 100), row(2, 110, 300, (1,)), row(3, 112, 250, (1,)), row(4, 320, 400, (2, 3))]
    assert shape(rows) == [(1, (), 0), (2, (1,), 10), (3, (1,), 12), (4, (2, 3), 20)]


def test_what_is_left_out_hands_its_dependencies_on() -> None:
    """A refused attempt is not sent again: its retry waits for what the attempt had waited for."""
    rows = [row(1, 0, 100), row(2, 110, 120, (1,), status=429), row(3, 150, 200, (2,), retry_of=ExchangeId(2))]
    made = plan(rows)
    assert shape(rows) == [(1, (), 0), (3, (1,), 50)]
    assert made.left_out == {"refused": 1}


def test_a_turn_without_known_dependencies_stays_behind_what_had_ended() -> None:
    """Without a gap it would otherwise overtake the turns before it."""
    rows = [row(1, 0, 100), row(2, 5, 40, kind="title"), row(3, 150, 200, kind="title")]
    assert shape(rows) == [(1, (), 0), (2, (), 5), (3, (1,), 50)]


def test_a_wait_for_something_later_is_no_wait() -> None:
    """A plan cannot hold a cycle."""
    assert shape([row(1, 0, 100, (2,)), row(2, 130, 200, (1,))]) == [(1, (), 0), (2, (1,), 30)]


def test_an_overlap_with_a_dependency_is_no_negative_gap() -> None:
    """Nobody can wait a negative time."""
    assert shape([row(1, 0, 100), row(2, 90, 200, (1,))]) == [(1, (), 0), (2, (1,), 0)]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"dialect": None}, "unread"),
        ({"session": None}, "unread"),
        ({"method": "GET"}, "unread"),
        ({"transport": "ws", "method": "GET"}, None),
        ({"transport": "ws", "method": "GET", "kind": "prewarm"}, "prewarm"),
        ({"transport": "ws", "method": "GET", "dialect": None}, "unread"),
        ({"state": "in_flight", "ended_ns": None}, "in_flight"),
        ({"state": "error", "status": None}, "no_answer"),
        ({"state": "client_aborted", "status": None}, "never_began"),
        ({"state": "client_aborted", "response_bytes": 0}, "never_began"),
        ({"status": 500}, "refused"),
        ({"state": "complete"}, None),
        ({"state": "client_aborted"}, None),
        ({"state": "truncated"}, None),
        ({"kind": "title"}, None),
    ],
)
def test_what_is_not_sent_again_is_counted_by_its_reason(changed: dict[str, object], reason: str | None) -> None:
    """Nothing is left out in silence."""
    made = plan([row(1, 0, 100, **changed)])
    assert made.left_out == ({reason: 1} if reason else {})
    assert len(made.turns) == (0 if reason else 1)


def test_what_goes_on_from_an_answer_has_its_lineage() -> None:
    """Oldest first, over what is itself left out; where some of it is not known the turn cannot be sent."""
    socket = {"transport": "ws", "method": "GET"}
    rows = [
        row(1, 0, 10, kind="prewarm", **socket),
        row(2, 20, 30, (1,), **socket),
        row(3, 40, 50, (2,), **socket),
        row(4, 60, 70, (3,)),
        row(5, 80, 90, (4,)),
    ]
    links = {ExchangeId(2): ExchangeId(1), ExchangeId(3): ExchangeId(2), ExchangeId(5): None}
    made = plan(rows, links=links)
    assert [(turn.source, turn.over_websocket, turn.lineage) for turn in made.turns] == [(2, True, (1,)), (3, True, (1, 2)), (4, False, ())]
    assert made.left_out == {"prewarm": 1, "before_unknown": 1}
    assert made.fingerprint != plan(rows[:4], links={ExchangeId(3): ExchangeId(2)}).fingerprint


def test_an_aborted_answer_is_played_to_its_end_without_a_recorded_length() -> None:
    """How long it would have become is unknown, not the length at which it was cut."""
    (turn,) = plan([row(1, 0, 100, state="client_aborted")]).turns
    assert turn.aborted
    assert turn.output_tokens is None


def test_side_calls_are_left_out_only_on_request() -> None:
    """They were part of the load that was recorded."""
    rows = [row(1, 0, 100), row(2, 5, 40, kind="title")]
    assert plan(rows, without_side_calls=("title",)).left_out == {"side_call": 1}
    assert [turn.source for turn in plan(rows, without_side_calls=("title",)).turns] == [1]


def test_sessions_come_in_order_of_arrival_and_keep_their_turns_apart() -> None:
    """Rows may come in any order."""
    rows = [row(3, 80, 90, session=2), row(1, 0, 100), row(2, 130, 200, (1,))]
    made = plan(rows)
    assert [(s.session, [t.source for t in s.turns]) for s in made.sessions] == [(1, [1, 2]), (2, [3])]
    assert (made.sessions[0].started_ns, made.sessions[0].ended_ns) == (START, START + 200 * MS)


def test_the_fingerprint_tells_plans_apart() -> None:
    """Same rows, same fingerprint; another body, gap or dependency, another."""
    rows = [row(1, 0, 100), row(2, 130, 200, (1,))]
    same = plan(rows).fingerprint
    assert plan(list(reversed(rows))).fingerprint == same
    assert plan(rows[:1]).fingerprint != same
    assert plan([rows[0], replace(rows[1], request_sha256="f" * 64)]).fingerprint != same
    assert plan([rows[0], replace(rows[1], started_ns=rows[1].started_ns + MS)]).fingerprint != same


def test_an_exchange_without_an_end_counts_from_its_start() -> None:
    """An interrupted recording keeps no end; what follows it is still planned."""
    rows = [row(1, 0, 100, state="interrupted", ended_ns=None), row(2, 130, 200, (1,))]
    assert shape(rows) == [(1, (), 0), (2, (1,), 130)]
