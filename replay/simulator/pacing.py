"""Sends an answer's pieces when they are due, on the monotonic clock at absolute times: being late once makes nothing else late.

It does not know what carries the pieces.
"""

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from replay.simulator.service import Sending, Service


class Pacing:
    """One answer on its way: `send` takes each piece, `done` is told when all are out."""

    def __init__(self, service: Service, sending: Sending, send: Callable[[bytes], None], done: Callable[[], None]) -> None:
        self._service, self.sending, self._send, self._done = service, sending, send, done
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def go_on(self) -> None:
        """Sends all that is due, then sleeps until the next is."""
        sending = self.sending
        while (number := len(sending.chunk_ns)) < len(sending.due):
            at_ns, data, out = sending.due[number]
            if at_ns > monotonic_ns():
                self._timer = self._loop.call_at(at_ns / 1e9, self.go_on)
                return
            self._send(data)
            sending.chunk_ns.append(monotonic_ns())
            if out and not sending.tokens_sent:
                sending.row.first_token_ns = sending.chunk_ns[-1]
            sending.tokens_sent = out
        self._service.end(sending, monotonic_ns())
        self._done()

    def stop(self) -> None:
        """The client left before all was out."""
        if self._timer is not None:
            self._timer.cancel()
        self._service.end(self.sending, monotonic_ns())
