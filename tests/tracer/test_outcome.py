"""How exchanges end: every failure before a head, in the body, and after the terminal event; and when content came."""

import pytest

from storage.records import Arrival, Exchange, Failure, FailureKind, Marks, Request, Response, State
from tracer.outcome import failed_by, marks, outcome
from tracer.wire.contract import Call, Delta

REQUEST = Request(method="POST", url="http://model.test/v1/messages", headers=(), body=b"{}")
HEAD = Response(status=200, headers=(), headers_at_ns=1, arrivals=(Arrival(5, b""), Arrival(7, b"x"), Arrival(9, b"y")))
CUT, ENDED, PLAIN = Call(streamed=True), Call(streamed=True, ended=True), Call()


def exchange(response: Response | None, kind: FailureKind | None, ended_ns: int | None = 10) -> Exchange:
    """An exchange that ended so."""
    failure = Failure(kind=kind, message="x", at_ns=9) if kind else None
    return Exchange(started_ns=1, request=REQUEST, response=response, failure=failure, ended_ns=ended_ns)


@pytest.mark.parametrize(
    ("response", "kind", "call", "state", "by"),
    [
        (HEAD, None, ENDED, State.COMPLETE, None),
        (HEAD, None, CUT, State.TRUNCATED, "upstream"),
        (HEAD, None, PLAIN, State.COMPLETE, None),
        (HEAD, None, None, State.COMPLETE, None),
        (HEAD, None, Call(streamed=True, error="overloaded"), State.COMPLETE, None),
        (Response(status=500, headers=(), headers_at_ns=1), None, CUT, State.COMPLETE, None),
        (HEAD, FailureKind.CLIENT_LEFT, CUT, State.CLIENT_ABORTED, "client"),
        (HEAD, FailureKind.CLIENT_LEFT, ENDED, State.COMPLETE, None),
        (None, FailureKind.CLIENT_LEFT, PLAIN, State.CLIENT_ABORTED, "client"),
        (HEAD, FailureKind.SERVER_CUT, CUT, State.UPSTREAM_ABORTED, "upstream"),
        (HEAD, FailureKind.SERVER_CUT, ENDED, State.UPSTREAM_ABORTED, "upstream"),
        (None, FailureKind.SERVER_CUT, PLAIN, State.ERROR, "upstream"),
        (HEAD, FailureKind.TRUNCATED, CUT, State.TRUNCATED, "upstream"),
        (None, FailureKind.UNREACHABLE, PLAIN, State.ERROR, None),
        (None, FailureKind.TIMED_OUT, PLAIN, State.ERROR, "recorder"),
        (HEAD, FailureKind.TIMED_OUT, CUT, State.UPSTREAM_ABORTED, "recorder"),
        (HEAD, FailureKind.INTERRUPTED, CUT, State.INTERRUPTED, "recorder"),
        (None, FailureKind.INTERRUPTED, None, State.INTERRUPTED, "recorder"),
    ],
)
def test_states(response: Response | None, kind: FailureKind | None, call: Call | None, state: State, by: str | None) -> None:
    """The table of the command-line contract."""
    assert outcome(exchange(response, kind), call) == (state, by)


def test_what_has_not_ended_is_in_flight() -> None:
    """No end, no state."""
    assert outcome(exchange(HEAD, None, ended_ns=None), CUT) == (State.IN_FLIGHT, None)


@pytest.mark.parametrize(
    ("state", "status", "call", "by"),
    [
        (State.COMPLETE, 200, ENDED, None),
        (State.COMPLETE, 200, None, None),
        (State.COMPLETE, 429, PLAIN, "upstream"),
        (State.COMPLETE, 200, Call(error="overloaded"), "upstream"),
        (State.CLIENT_ABORTED, 200, CUT, "client"),
        (State.TRUNCATED, 200, CUT, "upstream"),
        (State.INTERRUPTED, 200, CUT, "upstream"),
    ],
)
def test_who_failed_a_call(state: State, status: int, call: Call | None, by: str | None) -> None:
    """A complete answer that says no is as good as none."""
    assert failed_by(exchange(Response(status=status, headers=(), headers_at_ns=1), None), call, state) == by


def test_marks_are_the_reads_that_brought_content() -> None:
    """First byte, first content, first that is not reasoning, first text, last; two deltas of one read count once."""
    deltas = (Delta(7, "reasoning", "a"), Delta(9, "tool", "b"), Delta(9, "tool", "c"), Delta(11, "text", "d"))
    assert marks(exchange(HEAD, None), Call(deltas=deltas)) == Marks(
        first_byte_ns=7, first_content_ns=7, first_output_ns=9, first_text_ns=11, last_content_ns=11, content_reads=3
    )


def test_without_content_there_are_no_marks_of_it() -> None:
    """Never 0 for what did not come."""
    assert marks(exchange(HEAD, None), PLAIN) == Marks(first_byte_ns=7)
    assert marks(exchange(None, None), None) == Marks()
