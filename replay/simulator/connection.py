"""One client's connection: HTTP/1.1 by h11, keep-alive and pipelining, answers sent on the monotonic clock at absolute times.

It does not know what is asked or answered: requests go to `Service` whole, and what comes back has its times.
"""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from time import monotonic_ns
from typing import Any

import h11
from wsproto.utilities import RemoteProtocolError

from replay.simulator import routes, sockets
from replay.simulator.pacing import Pacing
from replay.simulator.prepare import Prepared, Received, check_key, prepare
from replay.simulator.service import Page, Sending, Service
from replay.simulator.values import Refusal

_HEAD_BYTES = 256 << 10
"""Most that a request's head may take: agents send long headers."""


class Connection(asyncio.Protocol):
    """Reads requests one after the other and answers each before the next."""

    def __init__(self, service: Service, worker: Executor, open_ones: "set[Open]", serials: Callable[[], int]) -> None:
        self._service = service
        self._worker = worker
        self._open_ones = open_ones
        self._serials = serials
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._received_ns = 0
        self._busy = False
        self._pacing: Pacing | None = None

    # ---- what asyncio calls ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open_ones.add(self)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._transport = None
        self._open_ones.discard(self)
        if self._pacing is not None:
            self._pacing.stop()
            self._pacing = None

    def data_received(self, data: bytes) -> None:
        if self._request is None:
            self._received_ns = monotonic_ns()
        self._http.receive_data(data)
        self._read()

    def eof_received(self) -> bool:
        """A client that closes its sending side still gets its answer."""
        self._http.receive_data(b"")
        self._read()
        return self._busy

    def close(self) -> None:
        """Ends the connection, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Takes events until a request is whole or more bytes are needed; while one is answered h11 keeps the next."""
        try:
            while not self._busy and self._take(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._reject(error)

    def _take(self, event: Any) -> bool:
        """Deals with one event; whether there may be another."""
        match event:
            case h11.Request():
                self._request, self._body = event, []
                if self._http.they_are_waiting_for_100_continue:
                    self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
            case h11.Data():
                self._body.append(bytes(event.data))
            case h11.EndOfMessage():
                self._answer()
            case _:
                if event is not h11.PAUSED and isinstance(event, h11.ConnectionClosed) and self._transport is not None:
                    self._transport.close()
                return False
        return True

    def _reject(self, error: h11.RemoteProtocolError) -> None:
        """What is no HTTP gets the status that h11 names, where an answer is still possible."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write(self._http.send(h11.Response(status_code=error.error_status_hint, headers=[("Connection", "close")])))
            self._write(self._http.send(h11.EndOfMessage()))
        if self._transport is not None:
            self._transport.close()

    def _answer(self) -> None:
        assert self._request is not None
        self._busy = True
        received = Received(
            method=self._request.method.decode("latin-1"),
            target=self._request.target.decode("latin-1"),
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._request.headers),
            body=b"".join(self._body),
            received_ns=self._received_ns,
            whole_ns=monotonic_ns(),
        )
        self._body = []
        if sockets.is_asked_for(received, self._service.settings):
            self._upgrade(received)
            return
        if received.method != "POST" or routes.dialect_of(routes.parted(received.target).path) is None:
            self._send_page(self._service.page(received))
            return
        work = self._beside(lambda serial: prepare(received, self._service.settings, serial))
        work.add_done_callback(lambda done: self._prepared(received, done))

    def _upgrade(self, received: Received) -> None:
        """The connection is a WebSocket's from now on, if its handshake can be answered."""
        assert self._transport is not None
        socket_ = sockets.Socket(self._service, received, self._beside)
        try:
            check_key(received, routes.parted(received.target).query, self._service.settings)
            answer = socket_.accept()
        except Refusal as refusal:
            self._send_page(self._service.refused(received, refusal))
            return
        except RemoteProtocolError:
            self._send_page(self._service.refused(received, Refusal(400, "invalid", "this is no WebSocket handshake")))
            return
        self._open_ones.discard(self)
        self._open_ones.add(socket_)
        self._transport.set_protocol(socket_)
        self._transport.write(answer)
        socket_.opened(self._transport, self._open_ones)
        if trailing := self._http.trailing_data[0]:
            socket_.data_received(trailing)

    def _beside(self, work: Callable[[int], Prepared]) -> "asyncio.Future[Prepared]":
        """Runs beside the loop, in the order of what was asked; `work` is given the request's number."""
        return self._loop.run_in_executor(self._worker, work, self._serials())

    def _prepared(self, received: Received, done: "asyncio.Future[Prepared]") -> None:
        if self._transport is None or done.cancelled():
            return
        refusal = done.exception()
        if isinstance(refusal, Refusal):
            self._send_page(self._service.refused(received, refusal))
            return
        begun = self._service.begin(received, done.result())
        if isinstance(begun, Page):
            self._send_page(begun)
        else:
            self._start(begun)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def _send_page(self, page: Page) -> None:
        headers = [("Content-Type", page.content_type), ("Content-Length", str(len(page.body)))]
        self._write(self._http.send(h11.Response(status_code=page.status, headers=headers)))
        assert self._request is not None
        if self._request.method != b"HEAD":
            self._write(self._http.send(h11.Data(data=page.body)))
        self._done()

    def _start(self, sending: Sending) -> None:
        if sending.streamed:
            headers = [
                ("Content-Type", sending.content_type),
                ("Cache-Control", "no-cache"),
                ("request-id", f"req_{sending.prepared.name}"),
            ]
            self._write(self._http.send(h11.Response(status_code=200, headers=headers)))
        self._pacing = Pacing(self._service, sending, lambda data: self._send_piece(sending, data), self._done)
        self._pacing.go_on()

    def _send_piece(self, sending: Sending, data: bytes) -> None:
        if not sending.streamed:
            headers = [("Content-Type", sending.content_type), ("Content-Length", str(len(data)))]
            headers.append(("request-id", f"req_{sending.prepared.name}"))
            self._write(self._http.send(h11.Response(status_code=200, headers=headers)))
        self._write(self._http.send(h11.Data(data=data)))

    def _done(self) -> None:
        """The answer is out: on to the next request of this connection, or its end."""
        self._pacing = None
        self._write(self._http.send(h11.EndOfMessage()))
        self._busy, self._request = False, None
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._received_ns = monotonic_ns()
            self._loop.call_soon(self._read)
        elif self._transport is not None:
            self._transport.close()

    def _write(self, data: bytes | None) -> None:
        if data and self._transport is not None:
            self._transport.write(data)


type Open = Connection | sockets.Socket
"""A connection as the server keeps it, to close it at its end."""
