"""The ledger: figures of made-up turns whose truth is known; what is not known stays None."""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from replay.reuse.ideal import Prompt
from replay.reuse.ledger import Ledger, Names, account, totals
from replay.reuse.prompts import Counted, fills_a_cache
from replay.reuse.rules import Rule, rule
from storage.errors import PlayheadError
from storage.records import ExchangeId, ExchangeRow, Marks, Usage

if TYPE_CHECKING:
    from replay.reuse.prefix_tree import Ids

type Parts = Sequence[tuple[str, Sequence[int]]]

TOOLS: tuple[str, Sequence[int]] = ("tool", range(1000, 1020))
SYSTEM: tuple[str, Sequence[int]] = ("system", range(2000, 2030))


def said(number: int, count: int = 10) -> tuple[str, Sequence[int]]:
    """A message of its own tokens."""
    return "message", range(number * 100, number * 100 + count)


def row(number: int, *, prompt: int | None, cached: int | None, **more: Any) -> ExchangeRow:
    known: dict[str, Any] = {
        "id": ExchangeId(number), "session": 1, "thread": 1, "agent": "main", "parent_thread": None, "number": number, "kind": "turn",
        "dialect": "anthropic_messages", "transport": "http1", "method": "POST", "url": "http://x/v1/messages", "model": "m",
        "status": 200, "state": "complete", "abort_by": None, "retry_of": None, "started_ns": number * 1000, "ended_ns": 900,
        "headers_ns": 1, "sent_ns": 1, "marks": Marks(first_content_ns=100), "usage": Usage(prompt=prompt, cached=cached),
        "stop": None, "streamed": True, "error": None, "request_bytes": 1, "request_sha256": "", "response_bytes": 1,
        "response_sha256": "", "chunks": 1, "run": None, "source_exchange": None, "copy": None, "ready_ns": None,
    }  # fmt: skip
    return ExchangeRow(**known | more)


class Thread:
    """Makes the turns of a ledger out of their elements."""

    def __init__(self) -> None:
        self._names: dict[tuple[object, ...], int] = {}
        self._ids: list[Ids] = []
        self._groups: list[str] = []
        self.counted: list[Counted] = []

    def turn(self, parts: Parts, *, cached: int | None = None, scale: int = 1, reply: Sequence[int] = (), **more: Any) -> None:
        number, path = len(self.counted) + 1, []
        for group, ids in parts:
            key = (path[-1] if path else None, group, tuple(ids))
            if key not in self._names:
                self._names[key] = len(self._ids)
                self._ids.append(array("I", ids))
                self._groups.append(group)
            path.append(self._names[key])
        count = sum(len(ids) for _, ids in parts)
        made = row(number, prompt=count * scale, cached=cached, **more)
        self.counted.append(Counted(made, Prompt(
            exchange=number, space=made.model or "", start_ns=made.started_ns, ready_ns=made.started_ns + 100,
            end_ns=made.started_ns + 900, path=tuple(path), estimate=count, tokens=count * scale, reply=array("I", reply),
        )))  # fmt: skip

    def ledger(self, under: Rule | None = None, *, generated: bool = False) -> Ledger:
        return account(self.counted, Names(self._ids.__getitem__, self._groups.__getitem__), under, generated=generated)


def test_a_growing_session() -> None:
    """Every turn shares all of the one before; nothing is broken, and a server that reports it lost nothing."""
    thread = Thread()
    head = [TOOLS, SYSTEM]
    thread.turn([*head, said(1)], cached=0)
    thread.turn([*head, said(1), said(2), said(3)], cached=60)
    thread.turn([*head, *(said(n) for n in range(1, 6))], cached=80)
    found = thread.ledger()
    assert [(r.prompt_tokens, r.ideal, r.reported, r.broken, r.lost, r.excess) for r in found.rows] == [
        (60, 0, 0, 0, 0, 0),
        (80, 60, 60, 0, 0, 0),
        (100, 80, 80, 0, 0, 0),
    ]
    assert [r.cause for r in found.rows] == [None, None, None]
    assert not any(r.estimated for r in found.rows)
    assert (found.totals.prompt_tokens, found.totals.ideal, found.totals.reported, found.totals.predicted) == (240, 140, 140, None)
    assert found.totals.ideal_share == pytest.approx(140 / 240)
    assert found.totals.reported_coverage == 1


def test_not_reported_is_not_zero() -> None:
    """A server that says nothing: None in the rows and in the sum, coverage 0; one that says 0: 0."""
    silent, zero = Thread(), Thread()
    for thread, cached in ((silent, None), (zero, 0)):
        thread.turn([SYSTEM, said(1)], cached=cached)
        thread.turn([SYSTEM, said(1), said(2)], cached=cached)
    quiet, loud = silent.ledger(), zero.ledger()
    assert [r.reported for r in quiet.rows] == [None, None]
    silence = quiet.totals
    assert (silence.reported, silence.reported_share, silence.reported_coverage, silence.excess) == (None, None, 0, None)
    assert [r.cause for r in quiet.rows] == [None, "not_reported"]
    assert (loud.totals.reported, loud.totals.reported_share, loud.totals.reported_coverage) == (0, 0, 1)
    assert (loud.rows[1].lost, loud.rows[1].cause) == (40, "unexplained")


@pytest.mark.parametrize(
    ("second", "cause", "path", "token", "broken"),
    [
        ([("tool", range(1000, 1010)), SYSTEM, said(1)], "tools_changed", "tools[0]", 10, 50),
        ([TOOLS, ("tool", range(5)), SYSTEM, said(1)], "tools_changed", "tools[1]", 20, 40),
        ([TOOLS, ("system", [*range(2000, 2015), 1, *range(2016, 2030)]), said(1)], "system_changed", "system[0]", 35, 25),
        ([TOOLS, SYSTEM, said(7)], "history_rewritten", "messages[0]", 50, 10),
    ],
)
def test_broken_tokens_have_a_cause_and_a_place(second: Parts, cause: str, path: str, token: int, broken: int) -> None:
    """What the turn itself threw away, by the first element that differs."""
    thread = Thread()
    thread.turn([TOOLS, SYSTEM, said(1)], cached=0)
    thread.turn(second, cached=token)
    found = thread.ledger().rows[1]
    assert (found.cause, found.broken, found.ideal) == (cause, broken, token)
    assert found.at is not None
    assert (found.at.path, found.at.token, found.at.byte) == (path, token, None)


def test_another_model_shares_nothing() -> None:
    """The cache is per model: all of the previous prompt is broken, and there is no place in the prompt to point at."""
    thread = Thread()
    thread.turn([SYSTEM, said(1)], cached=0)
    thread.turn([SYSTEM, said(1), said(2)], cached=0, model="other")
    found = thread.ledger().rows[1]
    assert (found.ideal, found.broken, found.cause, found.at) == (0, 40, "model_changed", None)


def test_predicted_against_reported() -> None:
    """With rules, lost is predicted minus reported; where nothing is reported it is what the rules cost."""
    reporting, silent = Thread(), Thread()
    for thread, cached in ((reporting, (0, 16)), (silent, (None, None))):
        thread.turn([SYSTEM, said(1)], cached=cached[0])
        thread.turn([SYSTEM, said(1), said(2)], cached=cached[1])
    under = rule("vllm")
    told, quiet = reporting.ledger(under).rows[1], silent.ledger(under).rows[1]
    assert (told.ideal, told.predicted, told.reported, told.lost, told.cause) == (40, 32, 16, 16, "unexplained")
    assert (quiet.ideal, quiet.predicted, quiet.reported, quiet.lost, quiet.cause) == (40, 32, None, 8, "block_rounding")


@pytest.mark.parametrize(("limits", "cause"), [({"ttl_s": 1e-7}, "expired"), ({"capacity": 16}, "evicted")])
def test_what_the_limits_cost(limits: dict[str, Any], cause: str) -> None:
    """One limit alone is the cause of what it takes; the server says nothing here."""
    thread = Thread()
    thread.turn([SYSTEM, said(1)])
    thread.turn([SYSTEM, said(1), said(2)])
    found = thread.ledger(rule("vllm", **limits)).rows[1]
    assert (found.cause, found.broken) == (cause, 0)
    assert found.predicted is not None
    assert found.predicted < 32


def test_rounding_explains_a_server_without_rules() -> None:
    """A reported count that a block size in use gives exactly is rounding; any other is unexplained."""
    thread = Thread()
    thread.turn([SYSTEM, said(1)], cached=0)
    thread.turn([SYSTEM, said(1), said(2)], cached=32)
    thread.turn([SYSTEM, said(1), said(2), said(3)], cached=30)
    assert [(r.lost, r.cause) for r in thread.ledger().rows[1:]] == [(8, "block_rounding"), (20, "unexplained")]


def test_more_reported_than_possible_is_an_excess() -> None:
    """It is kept as it is, and what was generated counts as possible once it is known."""
    thread = Thread()
    thread.turn([SYSTEM, said(1)], cached=0, reply=[*range(200, 205), 9])
    thread.turn([SYSTEM, said(1), said(2)], cached=48)
    assert thread.ledger().rows[1].excess == 8
    found = thread.ledger(generated=True)
    assert (found.rows[1].ideal_with_generated, found.rows[1].excess, found.totals.excess) == (45, 3, 3)


def test_counts_follow_the_servers_usage() -> None:
    """A server that counts three times as many tokens: figures in its tokens, marked as estimated, a loss inside the band not named."""
    thread = Thread()
    thread.turn([SYSTEM, said(1)], cached=0, scale=3)
    thread.turn([SYSTEM, said(1), said(2)], cached=119, scale=3)
    found = thread.ledger().rows[1]
    assert (found.prompt_tokens, found.ideal, found.lost, found.cause, found.estimated) == (150, 120, 1, None, True)


def test_a_body_that_was_not_taken_apart() -> None:
    """The server's figures stand, ours are unknown."""
    found = account([Counted(row(1, prompt=50, cached=10), None)], Names(lambda _: array("I"), str), None, generated=False)
    one = found.rows[0]
    assert (one.prompt_tokens, one.reported) == (50, 10)
    assert (one.ideal, one.broken, one.lost, one.excess, one.cause) == (None, None, None, None, None)
    assert found.totals.ideal is None
    assert found.totals.ideal_share is None


def test_copies_and_threads_are_kept_apart() -> None:
    """The previous turn is that of the same thread and the same copy."""
    thread = Thread()
    thread.turn([SYSTEM, said(1)], cached=0, copy=0)
    thread.turn([SYSTEM, said(2)], cached=30, copy=1)
    thread.turn([SYSTEM, said(1), said(3)], cached=40, copy=0)
    assert [r.broken for r in thread.ledger().rows] == [0, 0, 0]


def test_nothing_at_all() -> None:
    """No turns: no figures."""
    found = totals([])
    assert (found.prompt_tokens, found.ideal, found.reported_coverage, found.ideal_share_median) == (None, None, None, None)


def test_unknown_rules_are_refused() -> None:
    """With the names there are."""
    with pytest.raises(PlayheadError) as told:
        rule("no-such-engine")
    assert "vllm" in (told.value.hint or "")


def test_what_fills_a_cache() -> None:
    """Token counts, refused calls and traffic that is no model call do not."""
    assert fills_a_cache(row(1, prompt=1, cached=0))
    for more in ({"kind": "count_tokens"}, {"status": 400}, {"status": None}, {"dialect": None}, {"method": "GET"}):
        assert not fills_a_cache(row(1, prompt=1, cached=0, **more))
