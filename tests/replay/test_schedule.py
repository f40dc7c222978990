"""Gaps, arrivals and copies are arithmetic on a plan."""

import pytest

from replay.plan import Plan, PlannedSession, PlannedTurn
from replay.schedule import Pace, lanes, most_at_once, pace, waited_ns
from storage.errors import PlayheadError
from storage.records import ExchangeId

S = 1_000_000_000


def turn(number: int, gap_s: float = 0, after: tuple[int, ...] = (), session: int = 1) -> PlannedTurn:
    return PlannedTurn(
        source=ExchangeId(number), session=session, thread=1, number=number, kind="turn", dialect="openai_chat",
        after=tuple(ExchangeId(a) for a in after), gap_ns=round(gap_s * S),
        aborted=False, request_sha256="0", prompt_tokens=1, output_tokens=1,
    )  # fmt: skip


def session(number: int, start_s: float, end_s: float, *turns: PlannedTurn) -> PlannedSession:
    return PlannedSession(
        session=number, started_ns=round(start_s * S), ended_ns=round(end_s * S), turns=turns or (turn(number, session=number),)
    )


def a_plan(*sessions: PlannedSession) -> Plan:
    return Plan(sessions=sessions, left_out={})


@pytest.mark.parametrize(
    ("gaps", "speed", "recorded_s", "waited_s"),
    [
        ("keep", 1, 7, 7),
        ("keep", 2, 7, 3.5),
        ("drop", 1, 7, 0),
        ("cap:5", 1, 7, 5),
        ("cap:5", 2, 7, 2.5),
        ("cap:5", 1, 3, 3),
        ("cap:0", 1, 3, 0),
        ("cap:0.5", 1, 3, 0.5),
    ],
)
def test_a_gap_is_kept_capped_or_dropped_then_sped_up(gaps: str, speed: float, recorded_s: float, waited_s: float) -> None:
    """The cap is on the recorded gap, before the speed."""
    assert pace(gaps, speed).gap_ns(round(recorded_s * S)) == round(waited_s * S)


@pytest.mark.parametrize(
    ("gaps", "speed"),
    [
        ("short", 1),
        ("cap", 1),
        ("cap:", 1),
        ("cap:-1", 1),
        ("cap:nan", 1),
        ("cap:inf", 1),
        ("keep", 0),
        ("keep", -1),
        ("keep", float("nan")),
    ],
)
def test_a_pace_that_means_nothing_is_refused_with_a_hint(gaps: str, speed: float) -> None:
    """One clear line."""
    with pytest.raises(PlayheadError) as wrong:
        pace(gaps, speed)
    assert wrong.value.hint


def test_sessions_arrive_as_recorded_and_copies_together() -> None:
    """Arrivals are gaps too: the policy shortens what lies between them."""
    plan = a_plan(session(1, 100, 120), session(2, 110, 130), session(3, 170, 180))
    assert [(lane.session, lane.copy, lane.arrival_ns // S) for lane in lanes(plan, Pace(), 2)] == [
        (1, 0, 0),
        (1, 1, 0),
        (2, 0, 10),
        (2, 1, 10),
        (3, 0, 70),
        (3, 1, 70),
    ]
    assert [lane.arrival_ns // S for lane in lanes(plan, Pace(20 * S))] == [0, 10, 30]
    assert [lane.arrival_ns for lane in lanes(plan, Pace(0))] == [0, 0, 0]


def test_an_empty_plan_has_no_lanes() -> None:
    """Nothing to do is not an error here."""
    assert lanes(a_plan(), Pace()) == ()
    assert most_at_once(a_plan()) == 0


def test_most_at_once_is_the_recorded_overlap() -> None:
    """A session that begins as another ends does not overlap it."""
    assert most_at_once(a_plan(session(1, 0, 10), session(2, 5, 15), session(3, 10, 20), session(4, 30, 30))) == 2


def test_waited_is_the_longest_way_through_the_gaps() -> None:
    """Parallel threads wait side by side."""
    plan = a_plan(session(1, 0, 9, turn(1, 1), turn(2, 2, (1,)), turn(3, 5, (1,)), turn(4, 1, (2, 3))))
    assert waited_ns(lanes(plan, Pace())[0]) == 7 * S
