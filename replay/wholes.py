"""The recorded requests of a plan as HTTP carries them, loaded from the trace: those that only name what they go on from are made whole.

Elements stay as they were recorded, so prefixes are those of the session. Used by one thread at a time.
"""

from dataclasses import replace

from replay.edits import UnfitError
from replay.plan import PlannedTurn
from storage import exchanges
from storage.recency import Recency
from storage.records import ExchangeId, Request
from storage.trace import Trace
from tracer.wire import lineage
from tracer.wire.contract import Held

_REMEMBERED = 256
_OF_THE_SOCKET = "responses_websockets"


class Recorded:
    """Gives a plan's requests. What is held before a turn is mostly what was held before the turn before it, and one answer more."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._held: Recency[ExchangeId, Held] = Recency(_REMEMBERED)

    def as_it_was(self, turn: PlannedTurn) -> Request:
        """The request as it was recorded."""
        return exchanges.load(self._trace, turn.source).request

    def request(self, turn: PlannedTurn) -> Request:
        """The request to edit and send. Raises UnfitError when it cannot be made whole."""
        found = self.as_it_was(turn)
        if not (turn.over_websocket or turn.lineage):
            return found
        try:
            found = lineage.whole(turn.dialect, found, self._before(turn))
        except ValueError as wrong:
            raise UnfitError(turn.source, str(wrong)) from wrong
        return over_http(found) if turn.over_websocket else found

    def _before(self, turn: PlannedTurn) -> Held:
        """What the recorded server held when it was asked. ValueError when some of it cannot be read."""
        known = len(turn.lineage)
        held: Held | None = None
        while known and (held := self._held.get(turn.lineage[known - 1])) is None:
            known -= 1
        found = held or Held()
        for source in turn.lineage[known:]:
            found = lineage.held(turn.dialect, exchanges.load(self._trace, source), found)
            self._held.put(source, found)
        return found


def over_http(request: Request) -> Request:
    """A message on a WebSocket as a POST; its head was the upgrade's."""
    kept = tuple((name, value) for name, value in request.headers if not _is_of_the_socket(name.lower(), value))
    named = {name.lower() for name, _ in kept}
    added = tuple(pair for pair in (("Content-Type", "application/json"), ("Accept", "text/event-stream")) if pair[0].lower() not in named)
    return replace(request, method="POST", headers=kept + added)


def _is_of_the_socket(name: str, value: str) -> bool:
    return name.startswith("sec-websocket-") or (name == "openai-beta" and _OF_THE_SOCKET in value)


def declared(turns: tuple[PlannedTurn, ...]) -> list[dict[str, object]]:
    """What is changed in this way, as it is stored with the run and shown."""
    socket = sum(turn.over_websocket for turn in turns)
    held = sum(bool(turn.lineage) and not turn.over_websocket for turn in turns)
    said: list[dict[str, object]] = []
    if socket:
        said.append({"edit": "whole_input", "to": f"{socket} turns recorded on WebSocket are sent over HTTP with the whole input"})
    if held:
        said.append({"edit": "whole_history", "to": f"{held} turns that named an answer held by their server are sent with all before it"})
    return said
