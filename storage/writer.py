"""The writer: takes exchanges from whoever sees them and stores them, one thread, one transaction a batch.

Nothing here makes a caller wait for a disk or shows it an error: what cannot be kept is counted (`lost`) and told (`on_loss`).
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable

from storage.errors import PlayheadError, TraceError
from storage.records import Arrival, Exchange, Replayed, Splitter
from storage.steps import ROW_BYTES, Step, response_size
from storage.storing import Outcome, Storing, Trouble
from storage.trace import Trace

_log = logging.getLogger(__name__)

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
"""Between vain attempts."""
_PATIENCE = 4
"""Vain attempts on a full disk for which `flush` waits; the writer goes on trying."""
_LONGEST_TROUBLE_S = 10.0
"""For so long `flush` waits when the trace cannot be written for another reason, e.g. because it is locked."""


class Writer:
    """Stores exchanges from any thread. Opening one ends the exchanges that dead recorders left open.

    `queue_bytes` bounds what waits to be stored: a burst that comes faster than it can be stored. 460 MB of uploads at 150 MB/s left
    360 MB waiting; what goes beyond the bound is lost, and told. `on_loss` is called from the writer's thread with one line for the user.
    """

    def __init__(
        self,
        trace: Trace,
        splitter: Splitter,
        *,
        flush_interval_s: float = 0.1,
        queue_bytes: int = 1 << 30,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self.lost = 0
        self._interval_s = flush_interval_s
        self._limit = queue_bytes
        self._on_loss = on_loss
        self._tickets = itertools.count(1)
        self._news: dict[int, Step] = {}
        self._refused: set[int] = set()
        self._waiting_bytes = 0
        self._told = self._flushed = self._wanted = 0
        self._is_closing = False
        self._trouble: Trouble | None = None
        self._vain_attempts = self._lost_told = self._unsaid = 0
        self._is_hurried = False
        self._pause_s = _SHORTEST_PAUSE_S
        self._changed = threading.Condition()
        self._storing = Storing(trace, splitter)
        self._thread = threading.Thread(target=self._work, name="trace writer", daemon=True)
        self._thread.start()

    # ---- for callers ----

    def begin(self, exchange: Exchange) -> int:
        """The head of a request is there; gives the ticket by which the rest is told."""
        ticket, at_s = next(self._tickets), time.monotonic()
        self._tell(ticket, ROW_BYTES, lambda step: step.begin(exchange, at_s))
        return ticket

    def request_piece(self, ticket: int, data: bytes) -> None:
        """A piece of an upload in progress."""
        self._tell(ticket, len(data), lambda step: step.add_request_piece(data))

    def request_complete(self, ticket: int, exchange: Exchange) -> None:
        """The whole request is known."""
        self._tell(ticket, len(exchange.request.body), lambda step: step.know_request(exchange))

    def response_head(self, ticket: int, exchange: Exchange) -> None:
        """The head of the response is known."""
        self._tell(ticket, ROW_BYTES, lambda step: step.know_head(exchange))

    def arrival(self, ticket: int, arrival: Arrival) -> None:
        """A piece of the response's body."""
        self._tell(ticket, len(arrival.data), lambda step: step.add_arrival(arrival))

    def finish(self, ticket: int, exchange: Exchange, replayed: Replayed | None = None) -> None:
        """The exchange has ended: this is all of it."""
        size = len(exchange.request.body) + response_size(exchange)
        self._tell(ticket, size, lambda step: step.end(exchange, replayed))
        self._refused.discard(ticket)

    def put(self, exchange: Exchange, replayed: Replayed | None = None) -> None:
        """A whole exchange at once."""
        self.finish(next(self._tickets), exchange, replayed)

    def flush(self, timeout_s: float = 30.0) -> None:
        """Waits until all that was told is stored. StorageFullError or TraceError when it is not, or some was lost since the last flush."""
        with self._changed:
            wanted, patience = self._told, (self._vain_attempts + _PATIENCE, time.monotonic() + _LONGEST_TROUBLE_S)
            self._wanted = max(self._wanted, wanted)
            self._is_hurried = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._flushed >= wanted or self._is_vain(patience), timeout_s)
            untold, self._lost_told = self.lost - self._lost_told, self.lost
            if self._flushed < wanted or untold:
                raise self._error(untold)

    def close(self, timeout_s: float = 30.0) -> None:
        """Stores what is left, ends the lease and the thread. Errors as `flush`, after all that could be done was done."""
        failure: PlayheadError | None = None
        try:
            self.flush(timeout_s)
        except PlayheadError as error:
            failure = error
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if failure is not None:
            raise failure

    # ---- what waits ----

    def _tell(self, ticket: int, grows_by: int, change: Callable[[Step], None]) -> None:
        """Notes a change of an exchange, unless that is lost already or there is no room for it."""
        with self._changed:
            if ticket in self._refused:
                return
            if self._waiting_bytes and self._waiting_bytes + grows_by > self._limit:
                self._refuse(ticket)
                return
            step = self._news.get(ticket)
            before = step.size if step else 0
            if step is None:
                step = self._news[ticket] = Step(ticket)
            change(step)
            self._waiting_bytes += step.size - before
            self._told += 1
            if len(self._news) == 1:
                self._changed.notify_all()

    def _refuse(self, ticket: int) -> None:
        """No room: the exchange is lost, what waits of it is dropped, the caller goes on."""
        self.lost += 1
        self._unsaid += 1
        self._refused.add(ticket)
        dropped = self._news.pop(ticket, None)
        self._news[ticket] = Step(ticket, lost="the queue of the trace writer is full")
        self._waiting_bytes += ROW_BYTES - (dropped.size if dropped else 0)
        self._told += 1
        self._changed.notify_all()

    def _is_vain(self, patience: tuple[int, float]) -> bool:
        """Whether waiting longer helps nobody: after so many attempts that cost no time, at that time where they do, without the thread."""
        if self._trouble is None:
            return not self._thread.is_alive()
        is_over = time.monotonic() >= patience[1] if self._trouble.costs_time else self._vain_attempts >= patience[0]
        return is_over or not self._thread.is_alive()

    def _error(self, lost: int) -> PlayheadError:
        if self._trouble is not None:
            return self._trouble.error()
        if lost:
            return TraceError(f"{lost} exchanges could not be kept", hint="see what was said while recording")
        return TraceError("the trace could not be written in time", hint="look whether another program holds it, or the disk is slow")

    # ---- the thread ----

    def _work(self) -> None:
        """Until closed: waits for something to store and stores it."""
        while self._wait():
            with self._changed:
                seen, all_of_it = self._told, self._wanted > self._flushed
            self._take_news()
            young_s = time.monotonic() - (0 if all_of_it else self._interval_s)
            is_done = self._store(young_s)
            with self._changed:
                if is_done and not self._storing.has_waiting:
                    self._flushed = seen
                    self._changed.notify_all()
        self._end()

    def _take_news(self) -> None:
        with self._changed:
            news, self._news = self._news, {}
            refused, self._unsaid = self._unsaid, 0
        spared = self._storing.take(news)
        with self._changed:
            self._waiting_bytes -= spared
        if refused:
            self._say(f"{refused} exchanges could not be kept: the queue of the trace writer is full")

    def _wait(self) -> bool:
        """Gives the next batch time to gather. False: it is time to end."""
        with self._changed:
            if not self._storing.has_waiting:
                self._changed.wait_for(lambda: self._news or self._is_urgent(), self._storing.rest_s)
            if self._trouble is None:
                self._changed.wait_for(self._is_urgent, self._interval_s)
            else:
                self._changed.wait_for(lambda: self._is_closing or self._is_hurried, self._pause_s)
                self._pause_s = _SHORTEST_PAUSE_S if self._is_hurried else min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._is_hurried = False
            return not self._is_closing

    def _is_urgent(self) -> bool:
        return self._is_closing or self._wanted > self._flushed

    def _store(self, young_s: float) -> bool:
        """One batch. False: it could not be stored now and waits."""
        outcome = self._storing.store(young_s)
        self._account(outcome)
        return outcome.trouble is None

    def _account(self, outcome: Outcome) -> None:
        """Takes note of what a round of storing did, and says what the user must know; a lasting trouble once."""
        before = self._trouble
        with self._changed:
            self._waiting_bytes -= outcome.bytes_done
            self.lost += outcome.lost
            self._trouble = outcome.trouble
            if outcome.trouble:
                self._vain_attempts += 1
            else:
                self._pause_s = _SHORTEST_PAUSE_S
            self._changed.notify_all()
        if outcome.trouble and (before is None or before.kind != outcome.trouble.kind):
            outcome.said.append(outcome.trouble.text)
        for text in outcome.said:
            self._say(text)

    def _end(self) -> None:
        """What could not be stored is lost; the lease is given back."""
        self._take_news()
        outcome = self._storing.end(self._trouble)
        if outcome.lost:
            outcome.said.append(f"{outcome.lost} exchanges could not be kept")
        self._account(outcome)

    def _say(self, text: str) -> None:
        if self._on_loss is None:
            return
        try:
            self._on_loss(text)
        except Exception:  # whoever listens must not stop the writer
            _log.exception("a listener failed")
