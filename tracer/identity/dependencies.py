"""What had to be complete before an exchange could start, and how long after that it started.

Pure, over what identity remembers. A gap starts when the last dependency's stream closed; it is negative where a client had all it
needed before that.
"""

from collections.abc import Sequence

from storage.records import ExchangeId, Join
from tracer.identity.continuation import tells_summary
from tracer.identity.joining import joined
from tracer.identity.kinds import THREAD_KINDS
from tracer.identity.memory import Memory, Sighting, Thread, Trail

_AWAITED_SIDE_CALLS = frozenset(("router", "compaction", "prewarm"))
"""Side calls whose answer the next turn uses; titles and the like go on beside it."""


def dependencies(memory: Memory, sighting: Sighting, thread: Thread | None, previous: Trail | None) -> tuple[list[Trail], list[Join]]:
    """What had to be complete, and what is seen here of sub-agents. `previous`: the call that it goes on from, else what spawned it."""
    found: dict[ExchangeId, Trail] = {}
    if previous is not None:
        found[previous.id] = previous
    if thread is None or sighting.kind not in THREAD_KINDS:
        return list(found.values()), []
    since = previous.started_ns if previous is not None else 0
    for trail in reversed(thread.trails):
        if trail.started_ns < since:
            break
        if trail.kind in _AWAITED_SIDE_CALLS and trail.ended_ns <= sighting.started_ns and trail.id not in memory.joined:
            found[trail.id] = trail
    ended, joins = joined(memory, sighting, thread)
    found.update((trail.id, trail) for trail in ended)
    return list(found.values()), joins


def since(sighting: Sighting, after: Sequence[Trail]) -> int | None:
    """From the latest end among the dependencies to the start; None when there is none."""
    return sighting.started_ns - max(trail.ended_ns for trail in after) if after else None


def compacted(sighting: Sighting, thread: Thread | None, after: Sequence[Trail]) -> tuple[ExchangeId | None, ExchangeId | None]:
    """The thread's last turn with the old history and the call that made the summary, where this turn is the first after a compaction."""
    made = [trail for trail in after if trail.kind == "compaction" and not trail.failed]
    if thread is None or sighting.kind not in THREAD_KINDS or not made:
        return None, None
    last = thread.before(sighting.started_ns, THREAD_KINDS)
    told = [trail for trail in made if tells_summary(sighting, trail)]
    return (last.id, max(told, key=lambda trail: trail.ended_ns).id) if last is not None and told else (None, None)
