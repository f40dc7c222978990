"""A request that meets a connection which its server is closing goes once more over a new one; nothing else is ever sent twice."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import recorded_chats
from golden_server import GoldenServer, Script, Visitor, chunked, serving
from recorded_chats import chatting

from replay import sender
from replay.edits import Edits
from replay.plan import plan
from replay.run import Options, replay
from replay.sender import Heard, Lane
from storage import exchanges
from storage.records import FailureKind, Request
from storage.trace import Trace

ANSWER = chunked(b"data: one\n\n", b"data: two\n\n")


def request(server: GoldenServer) -> Request:
    return Request(method="POST", url=f"{server.url}/v1/messages", headers=(), body=b'{"model":"m"}')


def with_lane(server: GoldenServer, act: Callable[[Lane], Awaitable[list[Heard]]]) -> list[Heard]:
    """Runs `act` with a lane to the server."""

    async def main() -> list[Heard]:
        lane = Lane(server.url)
        try:
            return await act(lane)
        finally:
            lane.close()
            await asyncio.sleep(0.01)

    return asyncio.run(main())


def two_turns(server: GoldenServer) -> list[Heard]:
    """Two requests, one after the other, the second over the connection of the first."""

    async def act(lane: Lane) -> list[Heard]:
        first = await sender.send(lane, await lane.take(), sender.message(request(server)))
        connection = await lane.take()
        assert connection.writes == 1
        return [first, await sender.send(lane, connection, sender.message(request(server)))]

    return with_lane(server, act)


def leave(visitor: Visitor) -> None:
    """Closes without a word."""
    visitor.socket.shutdown(socket.SHUT_RDWR)


def reset(visitor: Visitor) -> None:
    """Ends the connection with a reset."""
    visitor.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    visitor.socket.close()


def in_turn(*scripts: Script) -> Script:
    """The first request meets the first script, and so on."""
    waiting = iter(scripts)
    return lambda visitor: next(waiting)(visitor)


@pytest.mark.parametrize("ends", [leave, reset])
def test_a_request_into_a_closing_connection_is_sent_once_more(ends: Script) -> None:
    """The same bytes, over a new connection; every stamp is of the second sending, so that the wait is lag."""
    closed_ns: list[int] = []

    def closing(visitor: Visitor) -> None:
        closed_ns.append(time.monotonic_ns())
        ends(visitor)

    with serving(in_turn(ANSWER, closing, ANSWER)) as server:
        first, second = two_turns(server)
    assert (first.failure, first.reconnected) == (None, False)
    assert (second.failure, second.reconnected, second.status) == (None, True, 200)
    assert b"".join(piece.data for piece in second.pieces) == b"data: one\n\ndata: two\n\n"
    assert server.asked[1] == server.asked[2]
    assert (len(server.asked), len(server.players)) == (3, 2)
    assert second.sent_ns is not None
    assert closed_ns[0] <= second.start_ns <= second.sent_ns <= second.head_ns


def test_nothing_is_sent_a_third_time() -> None:
    """The new connection is closed as well: the turn has failed."""
    with serving(in_turn(ANSWER, leave, leave, ANSWER)) as server:
        _, second = two_turns(server)
    assert second.failure is not None
    assert second.failure[0] is FailureKind.SERVER_CUT
    assert second.reconnected
    assert len(server.asked) == 3


def test_a_new_connection_that_is_closed_fails_at_once() -> None:
    """A server that takes a request and leaves is no closing connection."""

    async def act(lane: Lane) -> list[Heard]:
        return [await sender.send(lane, await lane.take(), sender.message(request(server)))]

    with serving(in_turn(leave, ANSWER)) as server:
        (heard,) = with_lane(server, act)
    assert heard.failure is not None
    assert heard.failure[0] is FailureKind.SERVER_CUT
    assert not heard.reconnected
    assert len(server.asked) == 1


def test_an_answer_that_has_begun_is_never_asked_for_again() -> None:
    """One byte is enough."""

    def begun(visitor: Visitor) -> None:
        visitor.say(b"H")
        leave(visitor)

    with serving(in_turn(ANSWER, begun, ANSWER)) as server:
        _, second = two_turns(server)
    assert second.failure is not None
    assert second.failure[0] is FailureKind.SERVER_CUT
    assert not second.reconnected
    assert len(server.asked) == 2


def test_a_server_that_is_gone_meanwhile_is_unreachable() -> None:
    """There is nothing to send it over."""

    async def act(lane: Lane) -> list[Heard]:
        first = await sender.send(lane, await lane.take(), sender.message(request(server)))
        connection = await lane.take()
        lane._port = unused_port()
        return [first, await sender.send(lane, connection, sender.message(request(server)))]

    with serving(in_turn(ANSWER, leave)) as server:
        _, second = with_lane(server, act)
    assert second.failure == (FailureKind.UNREACHABLE, "connection refused")
    assert (second.reconnected, second.sent_ns) == (True, None)


def unused_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def test_a_replay_stopped_in_its_second_sending_is_interrupted() -> None:
    """Whether the new connection is there already or not."""

    async def stopped(lane: Lane, *, connecting: bool) -> Heard:
        await sender.send(lane, await lane.take(), sender.message(request(server)))
        connection = await lane.take()
        if connecting:
            lane.take_new = never  # type: ignore[method-assign]
        task = asyncio.ensure_future(sender.send(lane, connection, sender.message(request(server))))
        while len(server.asked) < (2 if connecting else 3):  # noqa: ASYNC110 - another thread
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(sender.Cut) as cut:
            await task
        return cut.value.heard

    async def never() -> sender.StampedConnection:
        await asyncio.sleep(60)
        raise AssertionError

    for connecting in (True, False):

        async def act(lane: Lane, connecting: bool = connecting) -> list[Heard]:
            return [await stopped(lane, connecting=connecting)]

        with serving(in_turn(ANSWER, leave, lambda visitor: time.sleep(0.2))) as server:
            (heard,) = with_lane(server, act)
        assert heard.failure == (FailureKind.INTERRUPTED, "the replay was stopped")
        assert heard.reconnected


def test_a_server_that_closes_after_each_answer_loses_no_turn(tmp_path: Path) -> None:
    """llama.cpp does so though it offers keep-alive; without gaps the next turn leaves at that very moment."""
    path = tmp_path / "recorded.trace"
    recorded_chats.write(path, turns=6)
    answering = chatting()

    def closing(visitor: Visitor) -> None:
        answering(visitor)
        # Long enough for the next request to be on its way, short enough to meet it.
        time.sleep(0.002)
        leave(visitor)

    with serving(closing) as server, Trace.open(path) as trace:
        rows = exchanges.listing(trace)
        made = replay(trace, plan(rows), {row.id: row for row in rows}, Options(edits=Edits(target=server.url, length="free"), gaps="drop"))
        played = exchanges.listing(trace, runs=[made.run])
    assert (made.summary["turns"], made.summary["failed"]) == (12, 0)
    assert len(server.players) == 12
    assert all(row.ready_ns is not None and row.ready_ns <= row.started_ns for row in played)


def test_turns_that_were_sent_again_are_counted(tmp_path: Path) -> None:
    """A connection answers once and closes at its second request: every turn but the first goes twice."""
    path = tmp_path / "recorded.trace"
    recorded_chats.write(path)
    answering, answered = chatting(), set[int]()

    def once(visitor: Visitor) -> None:
        if id(visitor) in answered:
            leave(visitor)
        else:
            answered.add(id(visitor))
            answering(visitor)

    with serving(once) as server, Trace.open(path) as trace:
        rows = exchanges.listing(trace)
        options = Options(edits=Edits(target=server.url, length="free"), gaps="drop", concurrency=1)
        made = replay(trace, plan(rows), {row.id: row for row in rows}, options)
    assert (made.summary["turns"], made.summary["failed"], made.summary["reconnected"]) == (6, 0, 5)
    assert len(server.asked) == 6 + 5
