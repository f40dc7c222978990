"""Reads what was recorded and not yet read: what each exchange meant, how it ended, where it belongs. Off the recorder's path.

The bytes are the truth; what is derived here can be derived again (`playhead reread`). Memory does not grow with the length of a
conversation. Safe when two do it at once: both derive the same.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import batched
from typing import get_type_hints

import msgspec

from storage import decisions, derived, exchange_rows, exchanges, media_rows, places, sessions, trails
from storage.errors import DamagedError, NotFoundError
from storage.records import ExchangeId, Reading, State
from storage.trace import Trace
from tracer.identity import Cut, Identity, Merge, Sighting, Trail, Verdict, recalling
from tracer.prompts import Prompt, Prompts
from tracer.sightings import sighted

READER_VERSION = 3
"""Raise it when what is derived changes: everything is then read again when it is next asked for."""

_BATCH = 128
_MOST_ASKED = 1 << 20
_SESSIONS_AT_ONCE = 400
_HINTS = get_type_hints(Trail)
_KEPT = tuple(field.name for field in fields(Trail) if field.name != "placement")
_PACK = msgspec.msgpack.Encoder()
_UNPACK = msgspec.msgpack.Decoder(tuple[tuple(_HINTS[name] for name in _KEPT)])  # type: ignore[misc]


def catch_up(trace: Trace) -> int:
    """Reads what is unread, in order of start; how many exchanges that were; 0 where nothing can be saved. Idempotent."""
    unread = exchanges.unread(trace, READER_VERSION)
    if not unread:
        return 0
    recall = _Recall(trace, Identity(verdicts=_verdicts(trace)), unread)
    prompts = Prompts(trace)
    replays = trails.replays(trace, unread)

    def read() -> None:
        for some in batched(unread, _BATCH):
            _read(trace, recall, replays, _whole(trace, prompts, some))
            media_rows.save(trace, prompts.new_media())

    return len(unread) if derived.kept(trace, read) else 0


def _whole(trace: Trace, prompts: Prompts, some: Sequence[ExchangeId]) -> list[tuple[exchanges.Framed, Prompt]]:
    """Exchanges with their prompts, but for those that were deleted meanwhile, and those that are damaged.

    These count as read, with what is wrong, and keep no others up.
    """
    try:
        loaded = list(exchanges.load_framed(trace, some))
        found = prompts.of(some, (each.exchange for each in loaded))
        return [(framed, prompt) for framed, (_, prompt) in zip(loaded, found, strict=True)]
    except (DamagedError, NotFoundError) as error:
        if len(some) > 1:
            return [found for number in some for found in _whole(trace, prompts, (number,))]
        if isinstance(error, NotFoundError):
            return []
        state = State(exchange_rows.of_exchange(trace, some[0]).state)
        sessions.save(trace, [Reading(exchange_id=some[0], state=state, error=str(error))], [], READER_VERSION)
        return []


def _read(trace: Trace, recall: "_Recall", replays: Collection[ExchangeId], batch: Iterable[tuple[exchanges.Framed, Prompt]]) -> None:
    """One batch, saved at its end. Trails first: whatever happens, a call that counts as read is remembered.

    A replay is read and not placed: it stands where the call stands that it repeats.
    """
    found = [sighted(framed.exchange, prompt, framed.decoded_sha256) for framed, prompt in batch]
    sightings = [each.sighting for each in found if each.sighting and each.reading.exchange_id not in replays]
    recall.what_matters_to(sightings)
    identity = recall.identity
    placed = [identity.place(sighting) for sighting in sightings]
    trails.save(trace, {trail.id: _packed(trail) for trail in placed})
    placements = [trail.placement for trail in placed] + identity.corrections()
    keys = {trail.id: tuple(recalling.of_trail(trail)) for trail in placed}
    sessions.save(trace, [each.reading for each in found], placements, READER_VERSION, keys)


class _Recall:
    """Brings into memory what was placed before, as far as it can matter: sessions used last, and those that share a key with a call."""

    def __init__(self, trace: Trace, identity: Identity, unread: Sequence[ExchangeId]) -> None:
        self.identity = identity
        self._trace = trace
        self._unread = frozenset(unread)
        self._known: set[int] = set()
        self._asked: set[int] = set()
        self._is_needed = trails.are_kept(trace)

    def what_matters_to(self, sightings: Sequence[Sighting]) -> None:
        """Looks for what these calls may go on from."""
        if not self._is_needed or not sightings:
            return
        if not self._known:
            self._bring(trails.recent_sessions(self._trace, max(sighting.started_ns for sighting in sightings)))
        keys = {key for sighting in sightings for key in recalling.of_sighting(sighting)} - self._asked
        if len(self._asked) > _MOST_ASKED:
            self._asked.clear()
        self._asked |= keys
        self._bring(trails.sessions_with(self._trace, keys))

    def _bring(self, wanted: Collection[int]) -> None:
        """Whole sessions, but for what is read again: that is placed anew."""
        missing = sorted(set(wanted) - self._known)
        self._known.update(missing)
        for some in batched(missing, _SESSIONS_AT_ONCE):
            self.identity.recall(self._remembered(some))

    def _remembered(self, some: Sequence[int]) -> Iterator[Trail]:
        contents = dict(trails.load(self._trace, READER_VERSION, some))
        for placement in places.placements(self._trace, some):
            content = contents.get(placement.exchange_id)
            if content is not None and placement.exchange_id not in self._unread:
                kept = _UNPACK.decode(content)
                yield Trail(placement=placement, **dict(zip(_KEPT, kept, strict=True)))


def _verdicts(trace: Trace) -> tuple[Verdict, ...]:
    """What the user decided, as identity takes it; what was said of an exchange that is gone is void."""
    made = decisions.load(trace)
    starts = exchanges.starts(trace, [each.exchange for each in made if each.exchange is not None])
    found: list[Verdict] = []
    for each in made:
        if each.exchange is None:
            found.append(Merge(session=each.session, into=each.into))
        elif each.exchange in starts:
            found.append(Cut(session=each.session, into=each.into, from_ns=starts[each.exchange], exchange=each.exchange))
    return tuple(found)


def _packed(trail: Trail) -> bytes:
    return _PACK.encode([getattr(trail, name) for name in _KEPT])
