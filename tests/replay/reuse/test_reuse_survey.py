"""The ledger of a real trace: prompts out of the prefix tree, recordings and runs each in their own world."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from reuse_traces import body, count, exchange, record, replay

from replay.reuse import survey, words
from replay.reuse.rules import rule
from replay.reuse.survey import Asked
from storage import reuse_rows, sessions
from storage.trace import Trace


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    with Trace.open(tmp_path / "reuse.trace", create=True) as opened:
        yield opened


def prefix(turn: int) -> int:
    """What turn `turn` shares with the one before it: all of its prompt."""
    return count(body(turn - 1))


def test_a_recorded_session(trace: Trace) -> None:
    """Each turn can reuse the whole prompt before it; the figures are exact, since the server counts as we do."""
    record(trace, [exchange(turn, body(turn), prefix(turn) if turn > 1 else 0) for turn in range(1, 5)])
    found = survey.ledger_of(trace, Asked())
    assert [row.ideal for row in found.rows] == [0, prefix(2), prefix(3), prefix(4)]
    assert [row.prompt_tokens for row in found.rows] == [count(body(turn)) for turn in range(1, 5)]
    assert [row.turn for row in found.rows] == [1, 2, 3, 4]
    assert not any(row.estimated or row.broken or row.lost or row.excess for row in found.rows)


def test_generated_tokens_under_rules(trace: Trace) -> None:
    """What was generated comes back as a message: rules keep it, so a turn finds more than the prompt before it."""
    record(trace, [exchange(turn, body(turn), None) for turn in range(1, 4)])
    found = survey.ledger_of(trace, Asked(rule=rule("llama_cpp")))
    for row in found.rows[1:]:
        assert row.ideal is not None
        assert row.ideal_with_generated is not None
        assert row.ideal < row.ideal_with_generated == row.predicted


def test_more_than_prompts_explain_is_looked_for_in_answers(trace: Trace) -> None:
    """A server that reports more than earlier prompts hold: the answers are read before it is called an excess."""
    record(trace, [exchange(1, body(1), 0), exchange(2, body(2), prefix(2) + 5), exchange(3, body(3), prefix(3) + 900)])
    found = survey.ledger_of(trace, Asked())
    assert found.rows[1].excess == 0
    assert found.rows[2].excess is not None
    assert found.rows[2].excess > 800
    assert words.sentences(found)[0].startswith("ERROR")


def test_sessions_share_what_is_common(trace: Trace) -> None:
    """A second session finds the head that the first left; asked for alone it has the same figures."""
    record(trace, [exchange(1, body(1), 0, session="1"), exchange(1, body(2), 0, session="2", start_s=50)])
    everything = survey.ledger_of(trace, Asked())
    assert everything.rows[1].ideal == prefix(2)
    second = everything.rows[1].session
    assert second is not None
    alone = survey.ledger_of(trace, Asked(sessions=[second]))
    assert [row.ideal for row in alone.rows] == [prefix(2)]


def test_a_run_is_its_own_world(trace: Trace) -> None:
    """A replay finds nothing of what was recorded, and is accounted in the order in which it was sent."""
    sent = [exchange(turn, body(turn), None) for turn in (1, 2, 3)]
    record(trace, sent)
    run = replay(trace, [exchange(turn, body(turn), 16, start_s=100 - turn) for turn in (1, 2, 3)])
    found = survey.ledger_of(trace, Asked(runs=[run]))
    assert [row.prompt_tokens for row in found.rows] == [count(body(3)), count(body(2)), count(body(1))]
    assert [row.ideal for row in found.rows] == [0, count(body(2)), count(body(1))]
    assert found.totals.reported == 48


def test_a_salt_keeps_sessions_apart(trace: Trace) -> None:
    """A run whose salt differs between sessions shares nothing between them."""
    recorded = [exchange(1, body(1), None, session="1"), exchange(1, body(1), None, session="2", start_s=5)]
    record(trace, recorded)
    settings = {"policy": {"cache": "cold"}, "edits": [{"edit": "set", "field": "cache_salt", "to": '"x"'}]}
    again = [exchange(1, body(1), None, start_s=100), exchange(1, body(1), None, start_s=105)]
    salted, plain = replay(trace, again, settings=settings), replay(trace, again)
    assert [row.ideal for row in survey.ledger_of(trace, Asked(runs=[salted])).rows] == [0, 0]
    assert [row.ideal for row in survey.ledger_of(trace, Asked(runs=[plain])).rows] == [0, count(body(1))]


def test_a_changed_system_prompt_is_found(trace: Trace) -> None:
    """The turn, the element and the tokens before it."""
    record(trace, [exchange(1, body(1), 0), exchange(2, body(2, system="You are an agent. It is Tuesday."), 0)])
    found = survey.ledger_of(trace, Asked()).rows[1]
    assert found.cause == "system_changed"
    assert found.at is not None
    assert found.at.path == "system[0]"
    assert 0 < found.at.token < count(body(1))
    assert found.broken == count(body(1)) - found.at.token


def test_listings_get_the_figures(trace: Trace) -> None:
    """Figures of recorded turns are kept; a session's share follows."""
    record(trace, [exchange(turn, body(turn), None) for turn in (1, 2)])
    survey.ledger_of(trace, Asked())
    survey.ledger_of(trace, Asked())
    assert len(reuse_rows.load(trace)) == 2
    share = sessions.listing(trace)[0].ideal_share
    assert share == pytest.approx(prefix(2) / (count(body(1)) + count(body(2))))


def test_an_empty_trace(trace: Trace) -> None:
    """Nothing to account for, and it is said."""
    found = survey.ledger_of(trace, Asked())
    assert found.rows == ()
    assert words.sentences(found) == ["No prompts were answered here: there is nothing to account for."]
