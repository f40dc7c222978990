"""What had to be complete before an exchange could start, and how long after that it started.

Pure, over what identity remembers. A gap starts when the last dependency's stream closed; it is negative where a client had all it
needed before that.
"""

from collections.abc import Sequence

from storage.records import ExchangeId
from tracer.identity.canonical import View
from tracer.identity.kinds import THREAD_KINDS
from tracer.identity.memory import Memory, Sighting, Thread, Trail, plain

_AWAITED_SIDE_CALLS = frozenset(("router", "compaction", "prewarm"))
"""Side calls whose answer the next turn uses; titles and the like go on beside it."""
_LEAST_REPLY = 8


def dependencies(memory: Memory, sighting: Sighting, thread: Thread | None, previous: Trail | None) -> list[Trail]:
    """`previous`: the call of its thread that it goes on from, else the one that spawned it."""
    found: dict[ExchangeId, Trail] = {}
    if previous is not None:
        found[previous.id] = previous
    if thread is None or sighting.kind not in THREAD_KINDS:
        return list(found.values())
    since = previous.started_ns if previous is not None else 0
    for trail in reversed(thread.trails):
        if trail.started_ns < since:
            break
        if trail.kind in _AWAITED_SIDE_CALLS and trail.ended_ns <= sighting.started_ns and trail.id not in memory.joined:
            found[trail.id] = trail
    for trail in _joined(memory, sighting, thread):
        found[trail.id] = trail
    return list(found.values())


def gap_ns(sighting: Sighting, after: Sequence[Trail]) -> int | None:
    """From the latest end among the dependencies to the start; None when there is none."""
    return sighting.started_ns - max(trail.ended_ns for trail in after) if after else None


def _joined(memory: Memory, sighting: Sighting, thread: Thread) -> list[Trail]:
    """Last turns of this thread's sub-agents whose result this request carries."""
    found: list[Trail] = []
    for key in thread.children:
        child = memory.threads[key]
        last = child.before(sighting.started_ns, THREAD_KINDS)
        if last is None or last.kind == "memory" or last.id in memory.joined or last.ended_ns > sighting.started_ns:
            continue
        if _carries(memory, fresh_views(memory, sighting, thread), child, last):
            found.append(last)
    return found


def fresh_views(memory: Memory, sighting: Sighting, thread: Thread) -> Sequence[View]:
    """The elements that came after what the thread's last turn had sent; all of them where that is not known."""
    last = thread.before(sighting.started_ns, THREAD_KINDS)
    if last is None or last.id not in memory.trails:
        return sighting.talk
    for depth in range(len(sighting.chain) - 1, -1, -1):
        if sighting.chain[depth] == last.state:
            return sighting.talk[depth + 1 :]
    return sighting.talk[-8:]


def _carries(memory: Memory, fresh: Sequence[View], child: Thread, last: Trail) -> bool:
    first = child.trails[0]
    call_id = None
    if first.claimed is not None:
        parent = memory.trails.get(ExchangeId(first.claimed[0]))
        call_id = parent.spawns[first.claimed[1]].call_id if parent is not None else None
    own_id = child.key.rpartition("/")[2]
    for view in fresh:
        if view.role == "assistant":
            continue
        if call_id is not None and call_id in view.answers:
            return True
        for text in (*view.texts, *view.results):
            if own_id in text or (call_id is not None and call_id in text):
                return True
            if len(last.reply_text) >= _LEAST_REPLY and last.reply_text in plain(text, 4000):
                return True
    return False
