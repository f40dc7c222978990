"""How an exchange ended, and when its answer's content came. Pure, from the exchange and the call read from it.

States follow the command-line contract: a whole answer is complete whatever its status; who left first is told apart from who cut.
"""

from storage.records import Exchange, FailureKind, Marks, State
from tracer.wire.contract import Call

_BY = {
    FailureKind.CLIENT_LEFT: (State.CLIENT_ABORTED, "client"),
    FailureKind.SERVER_CUT: (State.UPSTREAM_ABORTED, "upstream"),
    FailureKind.TRUNCATED: (State.TRUNCATED, "upstream"),
    FailureKind.UNREACHABLE: (State.ERROR, None),
    FailureKind.TIMED_OUT: (State.UPSTREAM_ABORTED, "recorder"),
    FailureKind.INTERRUPTED: (State.INTERRUPTED, "recorder"),
}
"""Failure -> the state it means once an answer has begun, and who ended it."""
_BEFORE_HEAD = {FailureKind.SERVER_CUT, FailureKind.TRUNCATED, FailureKind.TIMED_OUT}


def outcome(exchange: Exchange, call: Call | None) -> tuple[State, str | None]:
    """The state of an exchange, and who cut it short: client, upstream, recorder, or None. `call` None: unknown traffic."""
    if exchange.ended_ns is None:
        return State.IN_FLIGHT, None
    told = call is not None and (call.ended or call.error is not None)
    failure = exchange.failure
    if failure is None:
        return (State.TRUNCATED, "upstream") if _lacks_its_end(exchange, call) else (State.COMPLETE, None)
    if failure.kind is FailureKind.CLIENT_LEFT and told and exchange.response is not None:
        return State.COMPLETE, None
    if exchange.response is None and failure.kind in _BEFORE_HEAD:
        return State.ERROR, _BY[failure.kind][1]
    return _BY[failure.kind]


def _lacks_its_end(exchange: Exchange, call: Call | None) -> bool:
    """A stream of a known dialect that closed cleanly without the dialect's terminal event."""
    response = exchange.response
    if call is None or response is None or response.status != 200:
        return False
    return call.streamed and not call.ended and call.error is None


def failed_by(exchange: Exchange, call: Call | None, state: State) -> str | None:
    """Whose doing it is that a call has no usable answer: client or upstream; None when it has one."""
    if state is State.CLIENT_ABORTED:
        return "client"
    if state in (State.UPSTREAM_ABORTED, State.TRUNCATED, State.ERROR, State.INTERRUPTED):
        return "upstream"
    refused = exchange.response is not None and exchange.response.status >= 400
    return "upstream" if refused or (call is not None and call.error is not None) else None


def marks(exchange: Exchange, call: Call | None) -> Marks:
    """The events of the answer (docs/reference/metrics.md): each at the raw read that completed it."""
    arrivals = exchange.response.arrivals if exchange.response else ()
    first_byte_ns = next((arrival.at_ns for arrival in arrivals if arrival.data), None)
    deltas = call.deltas if call else ()
    if not deltas:
        return Marks(first_byte_ns=first_byte_ns)
    return Marks(
        first_byte_ns=first_byte_ns,
        first_content_ns=deltas[0].at_ns,
        first_output_ns=next((delta.at_ns for delta in deltas if delta.channel != "reasoning"), None),
        first_text_ns=next((delta.at_ns for delta in deltas if delta.channel == "text"), None),
        last_content_ns=deltas[-1].at_ns,
        content_reads=len({delta.at_ns for delta in deltas}),
    )
