"""What a player does with a connection that its server has closed while the turn was waiting."""

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import pytest
from golden_server import GoldenServer, chunked, serving

from replay import sender
from replay.player import Keeper, Played, Player, Prepared
from replay.schedule import Lane
from storage.records import ExchangeId, FailureKind, Request

if TYPE_CHECKING:
    from replay.edits import Edits


class Collected:
    """A keeper that keeps what it is given in a list."""

    def __init__(self) -> None:
        self.turns: list[Played] = []

    def put(self, played: Sequence[Played]) -> None:
        self.turns += played


async def play_after_closing(server: GoldenServer, *, gone: bool = False) -> Played:
    """One turn whose connection the server closes before it is due; `gone`: the server listens no more either."""
    kept, lane = Collected(), sender.Lane(server.url)
    player = Player(cast("Keeper", kept), cast("Edits", None), [lane])
    request = Request(method="POST", url=f"{server.url}/v1/messages", headers=(), body=b"{}")
    prepared = Prepared(0, (1, 0), ExchangeId(7), request, sender.message(request))
    await player.connect(prepared)
    while not server.visitors:  # noqa: ASYNC110 - another thread
        await asyncio.sleep(0.005)
    server.visitors[0].socket.shutdown(socket.SHUT_RDWR)
    assert prepared.connection is not None
    while prepared.connection.is_open:  # noqa: ASYNC110 - the loop has to see it
        await asyncio.sleep(0.005)
    if gone:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        player.slots[0] = sender.Lane(f"http://127.0.0.1:{port}")
    await player.send(prepared, 0)
    await player.lane_ended(Lane(session=1, copy=0, arrival_ns=0, turns=()))
    lane.close()
    await asyncio.sleep(0.01)  # transports close in the loop's next rounds
    (turn,) = kept.turns
    return turn


@pytest.mark.parametrize("gone", [False, True])
def test_a_turn_is_not_lost_to_a_connection_that_was_closed_while_it_waited(gone: bool) -> None:
    """llama.cpp closes after every stream: the turn goes over a new connection, or is unreachable where there is none."""
    with serving(chunked(b"data: {}\n\n")) as server:
        heard = asyncio.run(play_after_closing(server, gone=gone)).heard
    if gone:
        assert heard.failure is not None
        assert heard.failure[0] is FailureKind.UNREACHABLE
    else:
        assert heard.failure is None
        assert [piece.data for piece in heard.pieces] == [b"data: {}\n\n"]
