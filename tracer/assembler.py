"""Puts one exchange together from what was seen on the wire, as it was seen.

Pure: it is told bytes and monotonic stamps and gives `records.Exchange` values. It does not know where the bytes come from (proxy or
replayer), what they mean, or who keeps them. Whoever feeds it masks secrets before (`tracer.redaction`).
"""

from storage.records import Arrival, Exchange, Failure, FailureKind, Headers, Origin, Request, Response, Transport
from tracer.clock import Clock


class Assembler:
    """One exchange in the making. Every `at_ns` is a monotonic stamp of this process; times before the start never occur.

    `request_head` comes first, once. Everything after may come in any order (an answer may overtake the upload) and whatever arrives
    after the end is ignored, so that a late event can never change what was kept.
    """

    __slots__ = (
        "_arrivals",
        "_clock",
        "_ended_ns",
        "_failure",
        "_headers_at_ns",
        "_method",
        "_origin",
        "_pieces",
        "_request_headers",
        "_response_headers",
        "_sent_ns",
        "_start_ns",
        "_status",
        "_transport",
        "_url",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start_ns = 0
        self._pieces: list[bytes] = []
        self._arrivals: list[Arrival] = []
        self._sent_ns: int | None = None
        self._status: int | None = None
        self._response_headers: Headers = ()
        self._headers_at_ns = 0
        self._failure: Failure | None = None
        self._ended_ns: int | None = None
        self._origin = Origin()

    def request_head(self, at_ns: int, method: str, url: str, headers: Headers, *, transport: Transport = Transport.HTTP1) -> None:
        """The head of the request is there: the exchange starts now. `url` absolute, secrets masked; `headers` already redacted."""
        self._start_ns = at_ns
        self._method, self._url, self._request_headers, self._transport = method, url, headers, transport

    def came_from(self, origin: Origin) -> None:
        """Where the exchange was made; may be told at any time before the end."""
        self._origin = origin

    def request_data(self, at_ns: int, data: bytes) -> None:  # noqa: ARG002 - the same shape as `response_data`
        """A piece of the request's body."""
        if self._ended_ns is None:
            self._pieces.append(data)

    def request_end(self, at_ns: int) -> None:
        """The whole request has been passed on."""
        if self._ended_ns is None:
            self._sent_ns = at_ns - self._start_ns
            self._pieces = [b"".join(self._pieces)]  # joined once: joining one piece later gives that very piece

    def response_head(self, at_ns: int, status: int, headers: Headers) -> None:
        """The head of the answer is there; `headers` already redacted."""
        if self._ended_ns is None:
            self._status, self._response_headers, self._headers_at_ns = status, headers, at_ns - self._start_ns

    def head_line(self, name: str, value: str) -> None:
        """A line of the recorder's own behind the head of the answer: what the wire said and no head could hold."""
        if self._ended_ns is None:
            self._response_headers = (*self._response_headers, (name, value))

    def response_data(self, at_ns: int, data: bytes) -> Arrival:
        """One raw read of the answer's body; gives it back as the arrival it became."""
        arrival = Arrival(at_ns - self._start_ns, data)
        if self._ended_ns is None:
            self._arrivals.append(arrival)
        return arrival

    def end(self, at_ns: int) -> None:
        """The exchange is over."""
        if self._ended_ns is None:
            self._ended_ns = at_ns - self._start_ns

    def fail(self, at_ns: int, kind: FailureKind, message: str) -> None:
        """Something on the wire ended the exchange; the first failure told is the one that counts."""
        if self._ended_ns is None:
            self._failure = Failure(kind=kind, message=message, at_ns=at_ns - self._start_ns)
            self.end(at_ns)

    @property
    def has_response_head(self) -> bool:
        """Whether the head of an answer was seen."""
        return self._status is not None

    @property
    def has_whole_request(self) -> bool:
        """Whether the last byte of the request was seen."""
        return self._sent_ns is not None

    @property
    def has_ended(self) -> bool:
        """Whether the exchange is over."""
        return self._ended_ns is not None

    def exchange(self) -> Exchange:
        """What is known so far."""
        return Exchange(
            started_ns=self._clock.unix_ns(self._start_ns),
            request=Request(method=self._method, url=self._url, headers=self._request_headers, body=b"".join(self._pieces)),
            sent_ns=self._sent_ns,
            response=self._response(),
            failure=self._failure,
            ended_ns=self._ended_ns,
            transport=self._transport,
            origin=self._origin,
        )

    def _response(self) -> Response | None:
        if self._status is None:
            return None
        return Response(
            status=self._status, headers=self._response_headers, headers_at_ns=self._headers_at_ns, arrivals=tuple(self._arrivals)
        )
