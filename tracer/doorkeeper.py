"""Stands at the door of every reverse listener: asks `tracer.admission` before mitmproxy looks at a request.

Who is refused gets the provider's JSON; the upstream hears nothing, nothing of it is recorded (a hostile page must not be able to fill a
trace), and it is told once a kind. The secret of a path is taken away here, so that nothing behind ever sees it.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from mitmproxy import http
from mitmproxy.proxy import layer
from mitmproxy.proxy.layers.http import DropStream, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import RequestHeaders, ResponseData, ResponseEndOfMessage, ResponseHeaders

from tracer import admission, refusal
from tracer.admission import Asked, Entrance, Refusal

type Commands = layer.CommandGenerator[None]


class Doorkeeper:
    """`entrances` by the listener's port: a listener without one (a forward proxy) has rules of its own. `tell` says who was refused."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.entrances: Mapping[int, Entrance] = {}
        self.refused: Counter[str] = Counter()
        """How many requests were refused, by kind."""
        self._tell = tell

    def install(self) -> Callable[[], None]:
        """Takes its place for the whole program; gives back what takes it away again."""
        wait = HttpStream.state_wait_for_request_headers
        keeper = self

        def admit_first(self: HttpStream, event: RequestHeaders) -> Commands:
            refused = keeper.turned_away(self.context.client.sockname[1], event.request)
            yield from wait(self, event) if refused is None else _refuse(self, event.request, refused)

        setattr(HttpStream, "state_wait_for_request_headers", admit_first)  # noqa: B010 - mypy forbids to assign to a method
        return lambda: setattr(HttpStream, "state_wait_for_request_headers", wait)

    def turned_away(self, port: int, request: http.Request) -> Refusal | None:
        """Why the request may not enter, counted and told; None when it may: its path is then as the upstream shall see it."""
        entrance = self.entrances.get(port)
        if entrance is None:
            return None
        refused = admission.refusal(entrance, _asked(request)) or _taken_below(entrance, request)
        if refused is not None:
            self._count(refused)
        elif request.data.authority and not request.is_http2:
            request.data.authority = b""  # a target in absolute form named us
        return refused

    def _count(self, refused: Refusal) -> None:
        self.refused[refused.kind] += 1
        if self.refused[refused.kind] == 1:
            self._tell(f"refused a request, and will count others like it: {refused.message}")

    def summary(self) -> str | None:
        """How many were refused, once it is more than what was told of each."""
        if self.refused.total() <= len(self.refused):
            return None
        kinds = ", ".join(f"{count} for {kind}" for kind, count in self.refused.most_common())
        return f"{self.refused.total()} requests were refused: {kinds}"


def _taken_below(entrance: Entrance, request: http.Request) -> Refusal | None:
    """Takes the secret out of the path; a refusal when it is not there."""
    if entrance.secret is None:
        return None
    inside = admission.below_secret(entrance.secret, request.data.path)
    if inside is None:
        return admission.no_secret()
    request.data.path = inside
    return None


def _asked(request: http.Request) -> Asked:
    found: dict[bytes, list[str]] = {b"host": [], b"origin": [], b"sec-fetch-site": []}
    for name, value in request.headers.fields:
        if len(name) in (4, 6, 14) and (values := found.get(name.lower())) is not None:
            values.append(value.decode("latin-1").strip())
    return Asked(
        hosts=tuple(found[b"host"]),
        authority=request.data.authority.decode("latin-1"),
        is_http2=request.is_http2,
        origins=tuple(found[b"origin"]),
        fetch_sites=tuple(found[b"sec-fetch-site"]),
    )


def _refuse(stream: HttpStream, request: http.Request, refused: Refusal) -> Commands:
    """A whole answer, and then the stream is deaf: what is still uploaded is read and dropped."""
    body = refusal.error_body(refused.status, refused.message, "" if refused.kind == "secret path" else request.path)
    headers = http.Headers(
        content_type="application/json", content_length=str(len(body)), server="playhead", x_content_type_options="nosniff"
    )
    if not request.is_http2:
        headers["connection"] = "close"
    answer = http.Response(b"HTTP/1.1", refused.status, refusal.reason(refused.status).encode(), headers, None, None, 0.0, 0.0)
    stream.flow = http.HTTPFlow(stream.context.client, stream.context.server)  # mitmproxy looks at it when the client leaves
    stream.flow.request, stream.flow.live = request, False
    stream.client_state = stream.server_state = stream.state_errored
    yield SendHttp(ResponseHeaders(stream.stream_id, answer, end_stream=False), stream.context.client)
    if request.method.upper() != "HEAD":
        yield SendHttp(ResponseData(stream.stream_id, body), stream.context.client)
    yield DropStream(stream.stream_id)
    yield SendHttp(ResponseEndOfMessage(stream.stream_id), stream.context.client)
