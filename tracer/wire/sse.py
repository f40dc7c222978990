"""Server-Sent Events, fed with bytes as they come (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Any split is fine: inside a character, inside CR LF. Each event carries the time of the read that completed it. It does not know
what the events mean, and never raises.
"""

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One dispatched event. `name` is "" when none was given; `data` is as it stood, its lines joined by LF."""

    at_ns: int
    name: str
    data: bytes
    id: str | None = None


class EventParser:
    """Turns reads into events. An event left open at the end of the stream is given by `finish`, with the time of the last read."""

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self._pending: list[bytes] = []
        self._after_cr = False
        self._begun = False
        self._at_ns = 0
        self._name = ""
        self._id: str | None = None
        self._data: list[bytes] = []

    def feed(self, at_ns: int, data: bytes) -> list[ServerEvent]:
        """The events that this read completed."""
        if not data:
            return []
        self._at_ns = at_ns
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = False
        if b"\n" not in data and b"\r" not in data:
            self._pending.append(data)
            return []
        return self._lines(b"".join((*self._pending, data)))

    def _lines(self, text: bytes) -> list[ServerEvent]:
        lines = text.splitlines(keepends=True)
        self._pending = [] if lines[-1][-1:] in (b"\n", b"\r") else [lines.pop()]
        self._after_cr = text.endswith(b"\r")
        return [event for line in lines if (event := self._line(line.rstrip(b"\r\n"))) is not None]

    def finish(self) -> list[ServerEvent]:
        """The event that the end of the stream left open, if it has data."""
        rest, self._pending = b"".join(self._pending), []
        ended = [self._line(rest)] if rest else []
        return [event for event in (*ended, self._dispatch()) if event is not None]

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        self._field(field, value.removeprefix(b" "))
        return None

    def _field(self, field: bytes, value: bytes) -> None:
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif field == b"retry" and value.isdigit() and len(value) < 16:
            self.retry_ms = int(value)

    def _dispatch(self) -> ServerEvent | None:
        name, data = self._name, self._data
        self._name, self._data = "", []
        return ServerEvent(self._at_ns, name, b"\n".join(data), self._id) if data else None
