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
from tracer.identity import Cut, Identity, Merge, Trail, Verdict
from tracer.prompts import Prompt, Prompts
from tracer.sightings import sighted

READER_VERSION = 3
"""Raise it when what is derived changes: everything is then read again when it is next asked for."""

_BATCH = 128
_HINTS = get_type_hints(Trail)
_KEPT = tuple(field.name for field in fields(Trail) if field.name != "placement")
_PACK = msgspec.msgpack.Encoder()
_UNPACK = msgspec.msgpack.Decoder(tuple[tuple(_HINTS[name] for name in _KEPT)])  # type: ignore[misc]


def catch_up(trace: Trace) -> int:
    """Reads what is unread, in order of start; how many exchanges that were; 0 where nothing can be saved. Idempotent."""
    unread = exchanges.unread(trace, READER_VERSION)
    if not unread:
        return 0
    identity = Identity(_remembered(trace, frozenset(unread)), _verdicts(trace))
    prompts = Prompts(trace)
    replays = trails.replays(trace, unread)

    def read() -> None:
        for some in batched(unread, _BATCH):
            _read(trace, identity, replays, _whole(trace, prompts, some))
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


def _read(trace: Trace, identity: Identity, replays: Collection[ExchangeId], batch: Iterable[tuple[exchanges.Framed, Prompt]]) -> None:
    """One batch, saved at its end. Trails first: whatever happens, a call that counts as read is remembered.

    A replay is read and not placed: it stands where the call stands that it repeats.
    """
    found = [sighted(framed.exchange, prompt, framed.decoded_sha256) for framed, prompt in batch]
    placed = [identity.place(each.sighting) for each in found if each.sighting and each.reading.exchange_id not in replays]
    trails.save(trace, {trail.id: _packed(trail) for trail in placed})
    placements = [trail.placement for trail in placed] + identity.corrections()
    sessions.save(trace, [each.reading for each in found], placements, READER_VERSION)


def _remembered(trace: Trace, unread: Collection[ExchangeId]) -> Iterator[Trail]:
    """What was placed before, in order of start."""
    contents = dict(trails.load(trace, READER_VERSION))
    for placement in places.placements(trace):
        content = contents.get(placement.exchange_id)
        if content is not None and placement.exchange_id not in unread:
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
