"""What an assembler makes of the events of one exchange, in every order they can come."""

from hypothesis import given
from hypothesis import strategies as st

from storage.records import Arrival, FailureKind, Origin, Transport
from tracer.assembler import Assembler
from tracer.clock import Clock

CLOCK = Clock()


def started(at_ns: int = 1_000) -> Assembler:
    """An assembler that has seen the head of a request."""
    assembler = Assembler(CLOCK)
    assembler.request_head(at_ns, "POST", "http://model/v1/messages", (("Content-Type", "application/json"),))
    return assembler


def test_a_whole_exchange_keeps_every_byte_and_time_relative_to_its_start() -> None:
    """Times are nanoseconds since the request head; bodies are the pieces joined."""
    assembler = started()
    assembler.request_data(1_100, b'{"a":')
    assembler.request_data(1_200, b"1}")
    assembler.request_end(1_250)
    assembler.response_head(2_000, 200, (("X", "1"),))
    assembler.response_data(2_500, b"ab")
    assembler.response_data(3_500, b"c")
    assembler.end(4_000)
    exchange = assembler.exchange()
    assert exchange.started_ns == CLOCK.unix_ns(1_000)
    assert exchange.request.body == b'{"a":1}'
    assert exchange.sent_ns == 250
    assert exchange.response is not None
    assert (exchange.response.status, exchange.response.headers_at_ns) == (200, 1_000)
    assert exchange.response.arrivals == (Arrival(1_500, b"ab"), Arrival(2_500, b"c"))
    assert (exchange.ended_ns, exchange.failure) == (3_000, None)


def test_an_exchange_in_the_making_has_no_end_and_no_answer() -> None:
    """Unknown is None, never zero."""
    assembler = started()
    exchange = assembler.exchange()
    assert (exchange.sent_ns, exchange.response, exchange.ended_ns, exchange.failure) == (None, None, None, None)
    assert not assembler.has_response_head
    assert not assembler.has_whole_request
    assert not assembler.has_ended


def test_an_answer_may_overtake_the_upload() -> None:
    """A server that refuses early answers before the request is whole; the pieces that still come are kept."""
    assembler = started()
    assembler.request_data(1_100, b"first")
    assembler.response_head(1_200, 413, ())
    assembler.request_data(1_300, b" second")
    assembler.end(1_400)
    exchange = assembler.exchange()
    assert exchange.request.body == b"first second"
    assert exchange.sent_ns is None
    assert exchange.response is not None


def test_the_first_failure_ends_the_exchange_and_later_events_change_nothing() -> None:
    """A late chunk, end or failure must not rewrite what was kept."""
    assembler = started()
    assembler.response_head(1_500, 200, ())
    assembler.response_data(1_600, b"part")
    assembler.fail(1_700, FailureKind.CLIENT_LEFT, "gone")
    before = assembler.exchange()
    assembler.request_data(1_710, b"x")
    assembler.request_end(1_720)
    assembler.response_head(1_730, 500, ())
    assembler.response_data(1_740, b"y")
    assembler.fail(1_800, FailureKind.SERVER_CUT, "late")
    assembler.end(1_900)
    assert assembler.exchange() == before
    assert before.failure is not None
    assert (before.failure.kind, before.failure.at_ns, before.ended_ns) == (FailureKind.CLIENT_LEFT, 700, 700)
    assert before.response is not None
    assert before.response.body == b"part"


def test_where_it_was_made_and_what_carried_it_are_kept() -> None:
    """Origin and transport pass through."""
    assembler = Assembler(CLOCK)
    assembler.request_head(5, "GET", "http://model/v1/models", (), transport=Transport.H2)
    assembler.came_from(Origin(listener="127.0.0.1:1", label="mine"))
    assert assembler.exchange().transport is Transport.H2
    assert assembler.exchange().origin.label == "mine"


@given(st.lists(st.binary(max_size=20)), st.lists(st.binary(max_size=20)))
def test_bodies_are_the_concatenation_of_their_pieces(sent: list[bytes], received: list[bytes]) -> None:
    """However the wire cut them."""
    assembler = started()
    for piece in sent:
        assembler.request_data(1_001, piece)
    assembler.response_head(1_002, 200, ())
    for at, piece in enumerate(received):
        assembler.response_data(1_003 + at, piece)
    assembler.end(9_999_999)
    exchange = assembler.exchange()
    assert exchange.request.body == b"".join(sent)
    assert exchange.response is not None
    assert exchange.response.body == b"".join(received)
    assert [arrival.at_ns for arrival in exchange.response.arrivals] == [3 + at for at in range(len(received))]
