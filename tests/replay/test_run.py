"""A whole replay over real sockets and a real trace: what is sent, what is kept, what is counted."""

import hashlib
import itertools
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import recorded_chats
from golden_server import Script, Visitor, serving
from recorded_chats import by_source, chatting, refusing

from replay.edits import Edits
from replay.plan import plan
from replay.run import Options, Outcome, replay
from storage import exchanges, runs
from storage.errors import PlayheadError, TargetError
from storage.records import ExchangeRow
from storage.trace import Trace


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trace of two sessions of three turns."""
    where = tmp_path / "recorded.trace"
    recorded_chats.write(where)
    return where


def played(path: Path, target: str, **options: Any) -> tuple[Outcome, list[ExchangeRow]]:
    """Replays everything in the trace."""
    edits = Edits(target=target, length=options.pop("length", "free"), key=options.pop("key", None), settings=options.pop("settings", ()))
    with Trace.open(path) as trace:
        rows = exchanges.listing(trace)
        made = replay(trace, plan(rows), {row.id: row for row in rows}, Options(edits=edits, **{"gaps": "drop", **options}))
        return made, exchanges.listing(trace, runs=[made.run])


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_every_recorded_turn_is_sent_once_a_copy_with_its_own_bytes(path: Path) -> None:
    """Six turns, two copies, twelve requests; path, query and the agent's headers are kept, the masked key is not sent."""
    with serving(chatting()) as server:
        outcome, rows = played(path, server.url, copies=2)
    wanted = sorted(recorded_chats.body(s, t) for s in (1, 2) for t in (1, 2, 3)) * 2
    assert sorted(body for _, body in server.asked) == sorted(wanted)
    assert all(head.startswith(b"POST /v1/chat/completions?x=1 HTTP/1.1\r\n") for head, _ in server.asked)
    assert all(b"x-session-id: ses_" in head and b"authorization" not in head.lower() for head, _ in server.asked)
    assert (outcome.summary["turns"], outcome.summary["failed"], outcome.summary["not_sent"], outcome.stopped) == (12, 0, 0, False)
    assert len(by_source(rows)) == 12


def test_answers_are_kept_as_exchanges_of_the_run_in_the_place_of_what_they_repeat(path: Path) -> None:
    """Byte for byte, with session, thread and number of the recorded turn, and no secret of either side."""
    with serving(chatting()) as server:
        outcome, rows = played(path, server.url, key="sk-very-secret-key-0123456789")
    with Trace.open(path) as trace:
        recorded = {row.id: row for row in exchanges.listing(trace)}
        kept = [exchanges.load(trace, row.id) for row in rows]
    for row in rows:
        assert row.source_exchange is not None
        source = recorded[row.source_exchange]
        assert (row.session, row.thread, row.number, row.kind) == (source.session, source.thread, source.number, source.kind)
        assert row.request_sha256 == source.request_sha256
        assert (row.run, row.copy, row.state, row.usage.output) == (outcome.run, 0, "complete", 4)
        assert row.ready_ns is not None
        assert row.ready_ns <= row.started_ns
    answers = {sha(b"".join(recorded_chats.answer(n))) for n in range(6)}
    assert {row.response_sha256 for row in rows} == answers
    assert all(b"Bearer sk-very-secret-key-0123456789" in head for head, _ in server.asked)
    assert "very-secret" not in repr(kept)
    assert "secret=1" not in repr(kept)
    assert b"very-secret" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_turns_of_a_session_follow_each_other_with_their_gaps(path: Path) -> None:
    """A turn is due a gap after the stream before it closed, and starts not before."""
    with serving(chatting(wait_s=0.02)) as server:
        _, rows = played(path, server.url, gaps="keep")
    for session in {row.session for row in rows}:
        turns = sorted((row for row in rows if row.session == session), key=lambda row: row.number or 0)
        for before, after in itertools.pairwise(turns):
            assert before.ended_ns is not None
            assert after.ready_ns is not None
            assert after.ready_ns == before.started_ns + before.ended_ns + 20_000_000
            assert after.started_ns >= after.ready_ns


def test_the_summary_is_that_of_the_rows_and_is_kept_with_the_run(path: Path) -> None:
    """With the policy and every edit beside it."""
    with serving(chatting()) as server:
        outcome, rows = played(path, server.url, length="cap")
    figures = outcome.summary
    assert (figures["prompt_tokens"], figures["cached_tokens"], figures["output_tokens"]) == (600, 48, 24)
    assert figures["ttft_ms"]["n"] == figures["e2e_ms"]["n"] == figures["lag_ms"]["n"] == 6
    firsts = sorted((row.marks.first_content_ns or 0) / 1e6 for row in rows)
    assert figures["ttft_ms"]["p50"] == pytest.approx((firsts[2] + firsts[3]) / 2)
    assert figures["out_of_band"] == 0
    assert figures["makespan_s"] > 0
    with Trace.open(path) as trace:
        run = runs.load(trace, outcome.run)
    assert run.summary == figures
    assert run.target == server.url
    pace = {"gaps": "drop", "speed": 1.0, "concurrency": 2, "copies": 1, "only_turns": False}
    assert run.settings["policy"] == {**pace, "length": "cap", "history": "recorded", "cache": "as-found"}
    assert [edit["edit"] for edit in run.settings["edits"]] == ["url", "accept_encoding", "max_output_tokens", "report_usage"]
    assert (run.settings["plan"]["turns"], run.settings["plan"]["sessions"]) == (6, 2)
    assert run.ended_ns is not None
    assert run.ended_ns > run.started_ns


def test_what_is_not_reported_is_none_and_a_reported_0_is_0(path: Path) -> None:
    """The two must never be mistaken for each other."""
    with serving(chatting(cached=None)) as server:
        assert played(path, server.url)[0].summary["cached_tokens"] is None
    with serving(chatting(cached=0)) as server:
        assert played(path, server.url)[0].summary["cached_tokens"] == 0


def test_at_most_so_many_sessions_are_under_way(path: Path) -> None:
    """With one place, the second session begins after the first has ended."""
    with serving(chatting(wait_s=0.01)) as server:
        _, rows = played(path, server.url, concurrency=1)
    assert len(server.players) == 1
    spans = {s: [(r.started_ns, r.started_ns + (r.ended_ns or 0)) for r in rows if r.session == s] for s in {r.session for r in rows}}
    first, second = sorted(spans.values())
    assert max(end for _, end in first) <= min(start for start, _ in second)


def cut(visitor: Visitor) -> None:
    """Promises more than it sends."""
    visitor.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\ndata: {}\n\n")
    visitor.socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("script", "reason"),
    [(refusing(b"401 Unauthorized"), "status 401"), (refusing(b"500 Oops"), "status 500"), (cut, "upstream_aborted")],
    ids=["wrong key", "server error", "cut"],
)
def test_failed_turns_are_counted_by_their_reason_and_are_in_no_latency(path: Path, script: Script, reason: str) -> None:
    """What waits for a failed turn goes on."""
    with serving(script) as server:
        outcome, rows = played(path, server.url)
    assert (outcome.summary["turns"], outcome.summary["failed"], outcome.summary["failures"]) == (6, 6, {reason: 6})
    assert outcome.summary["ttft_ms"] == {"p50": None, "p90": None, "p99": None, "n": 0, "too_small": ["p50", "p90", "p99"]}
    assert outcome.summary["lag_ms"]["n"] == 6
    assert len(rows) == 6


def test_a_target_that_goes_away_leaves_failed_turns_not_an_error(path: Path) -> None:
    """The connections that were opened before are gone; every later turn is unreachable."""
    with serving(chatting()) as server:
        served = server.script

        def once(visitor: Any) -> None:
            served(visitor)
            threading.Thread(target=server.close, daemon=True).start()

        server.script = once
        outcome, rows = played(path, server.url, concurrency=1)
    assert outcome.summary["turns"] == 6
    assert outcome.summary["failed"] >= 4
    assert any(reason.startswith("no answer") for reason in outcome.summary["failures"])
    assert len(rows) == 6


def test_an_unreachable_target_is_told_before_a_run_is_made(path: Path) -> None:
    """Nothing is sent, nothing is written."""
    with pytest.raises(TargetError, match="cannot be reached"):
        played(path, "http://127.0.0.1:9")
    with Trace.open(path) as trace:
        assert runs.listing(trace) == []


def test_an_edit_that_a_body_cannot_carry_ends_the_run_with_its_reason(path: Path) -> None:
    """The user's error comes through as it is, however many sessions were under way."""
    with serving(chatting()) as server, pytest.raises(PlayheadError, match="cannot carry the declared edits"):
        played(path, server.url, settings=(("messages.0.content.deep", "1"),))


def test_a_long_session_is_stored_on_its_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of a session is bounded: here every turn is too much, and every batch waits for the disk."""
    monkeypatch.setattr("replay.player.HELD_BYTES", 0)
    monkeypatch.setattr("replay.player.FLUSH_BYTES", 0)
    with serving(chatting()) as server:
        outcome, rows = played(path, server.url)
    assert len(by_source(rows)) == 6
    assert outcome.summary["failed"] == 0
