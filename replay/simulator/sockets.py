"""A WebSocket for Responses (GET .../responses): each `response.create` is answered by the messages that a stream over HTTP has as events.

What the connection has answered it holds: a request names the answer it goes on from and brings only what is new. `generate: false` asks
for nothing but to have the prompt in the cache.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from time import monotonic_ns
from typing import Any

import orjson
from wsproto import ConnectionType, WSConnection, events
from wsproto.extensions import PerMessageDeflate
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from replay.simulator import routes
from replay.simulator.dialects import openai_responses
from replay.simulator.pacing import Pacing
from replay.simulator.prepare import Prepared, Received, Settings, prepare
from replay.simulator.service import Page, Sending, Service
from replay.simulator.values import Refusal
from replay.simulator.wording import packed
from tracer.wire.contract import Held
from tracer.wire.openai_responses import whole

type Beside = Callable[[Callable[[int], Prepared]], "asyncio.Future[Prepared]"]


def is_asked_for(received: Received, settings: Settings) -> bool:
    """Whether a request asks for a WebSocket that this server has."""
    upgrade = (received.header("upgrade") or "").lower()
    is_here = received.method == "GET" and routes.dialect_of(routes.parted(received.target).path) is openai_responses
    return settings.websocket and is_here and "websocket" in upgrade


class Socket(asyncio.Protocol):
    """One upgraded connection: requests are answered one after the other. `beside` prepares answers off the loop."""

    def __init__(self, service: Service, upgrade: Received, beside: Beside) -> None:
        self._service, self._upgrade, self._beside = service, upgrade, beside
        self._ws = WSConnection(ConnectionType.SERVER)
        self._transport: asyncio.Transport | None = None
        self._open_ones: set[Any] = set()
        self._parts: list[str] = []
        self._received_ns = 0
        self._waiting: deque[Received] = deque()
        self._held: dict[str, Held] = {}
        self._is_busy = False
        self._pacing: Pacing | None = None

    def accept(self) -> bytes:
        """The answer to the handshake. RemoteProtocolError when it is none."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self._upgrade.headers]
        self._ws.initiate_upgrade_connection(headers, self._upgrade.target)
        asked = [event for event in self._ws.events() if isinstance(event, events.Request)]
        if not asked:
            raise RemoteProtocolError("no handshake")
        return self._ws.send(events.AcceptConnection(extensions=[PerMessageDeflate()]))

    # ---- what asyncio calls ------------------------------------------------------------------------------------------

    def opened(self, transport: asyncio.Transport, open_ones: set[Any]) -> None:
        """The connection is this one's now."""
        self._transport, self._open_ones = transport, open_ones

    def data_received(self, data: bytes) -> None:
        if not self._parts:
            self._received_ns = monotonic_ns()
        try:
            self._ws.receive_data(data)
            for event in self._ws.events():
                self._take(event)
        except RemoteProtocolError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._open_ones.discard(self)
        self._waiting.clear()
        if self._pacing is not None:
            self._pacing.stop()
            self._pacing = None

    def close(self) -> None:
        """Ends the connection, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    # ---- messages ----------------------------------------------------------------------------------------------------

    def _take(self, event: events.Event) -> None:
        match event:
            case events.TextMessage():
                self._parts.append(event.data)
                if event.message_finished:
                    self._asked("".join(self._parts).encode())
                    self._parts = []
            case events.Ping():
                self._say(event.response())
            case events.CloseConnection():
                self._say(event.response())
                if self._transport is not None:
                    self._transport.close()
            case _:
                return

    def _asked(self, text: bytes) -> None:
        headers = self._upgrade.headers
        received = Received(
            method="POST", target=self._upgrade.target, headers=headers, body=text, received_ns=self._received_ns, whole_ns=monotonic_ns()
        )
        self._waiting.append(received)
        self._next()

    def _next(self) -> None:
        """On to the next request, when none is under way."""
        if self._is_busy or not self._waiting or self._transport is None:
            return
        self._is_busy = True
        received = self._waiting.popleft()
        work = self._beside(lambda serial: self._prepare(received, serial))
        work.add_done_callback(lambda done: self._prepared(received, done))

    def _prepare(self, received: Received, serial: int) -> Prepared:
        """What is answered. Raises Refusal."""
        body = _object(received.body)
        if body.get("type") != "response.create":
            raise Refusal(400, "invalid", f"there is no message of type {body.get('type')!r} here")
        text = _whole(received.body, self._before(body))
        made = prepare(replace(received, body=text), self._service.settings, serial)
        made = replace(made, asked=replace(made.asked, streamed=True, framing="messages"))
        return replace(made, parts=(), stop="end") if body.get("generate") is False else made

    def _before(self, body: dict[str, Any]) -> Held:
        """What the connection holds of the answer that a request names. Raises Refusal."""
        named = body.get("previous_response_id")
        if named is None:
            return Held()
        if named not in self._held:
            raise Refusal(400, "previous", f"Previous response with id '{named}' not found.")
        return self._held[named]

    def _prepared(self, received: Received, done: "asyncio.Future[Prepared]") -> None:
        if self._transport is None or done.cancelled():
            return
        refusal = done.exception()
        if isinstance(refusal, Refusal):
            self._refuse(refusal.status, self._service.refused(received, refusal))
            return
        begun = self._service.begin(received, done.result())
        assert isinstance(begun, Sending)  # a page is for token counts, which nobody asks for here
        self._pacing = Pacing(self._service, begun, self._say_text, lambda: self._answered(received, begun))
        self._pacing.go_on()

    def _refuse(self, status: int, page: Page) -> None:
        self._say_text(packed({"type": "error", "status": status, **_object(page.body)}))
        self._is_busy = False
        self._next()

    def _answered(self, received: Received, sending: Sending) -> None:
        """The answer is out: it can be gone on from."""
        self._pacing = None
        response = _object(sending.due[-1][1])["response"]
        before = self._before(_object(received.body))
        self._held[response["id"]] = whole.held(received.body, before, tuple(packed(item) for item in response["output"]))
        self._is_busy = False
        self._next()

    def _say_text(self, data: bytes) -> None:
        self._say(events.TextMessage(data=data.decode()))

    def _say(self, event: events.Event) -> None:
        if self._transport is None:
            return
        try:
            self._transport.write(self._ws.send(event))
        except LocalProtocolError:  # after its close frame nothing more is said
            self._transport.close()


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise Refusal(400, "invalid", f"the message is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refusal(400, "invalid", "the message is not a JSON object")
    return found


def _whole(text: bytes, before: Held) -> bytes:
    try:
        return whole.whole(text, before)
    except ValueError as error:
        raise Refusal(400, "invalid", str(error)) from None
