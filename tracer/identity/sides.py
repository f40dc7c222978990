"""Whose calls on the side are: they repeat words of the session they serve, or come from its process.

Pure, over what identity remembers. A side call that comes before its session's first turn opens the session; the turn adopts it.
"""

from tracer.identity.kinds import THREAD_KINDS
from tracer.identity.memory import Known, Memory, Sighting, Trail, plain
from tracer.identity.names import is_partial, names
from tracer.identity.spawning import claim, is_fresh

_LEAST_WORDS = 4
_LEAST_REPLY = 16
_RECENT_TURNS = 8
_RECENT_NS = 600_000_000_000
_NEVER_FIRST = frozenset(("compaction", "commit_message"))
"""These have something to work on: where no words tell whose it is, that of the session used last."""


def served(memory: Memory, sighting: Sighting) -> tuple[Known, float] | None:
    """The session that a side call serves, and how sure that is; None when nothing tells."""
    text = plain("\n".join(text for view in sighting.talk for text in (*view.texts, *view.results)), 20_000)
    sessions = [known for known in memory.sessions_of(sighting.client, sighting.pid) if _may_serve(memory, known, sighting)]
    for known in sessions if not _asks_first(sighting) else ():
        if any(_repeats(text, trail) for trail in _recent(memory, known, sighting.started_ns)):
            return known, 0.6
    for known in sessions:
        if sighting.pid is not None and sighting.pid in known.pids:
            return known, 0.5
    if sighting.kind in _NEVER_FIRST:
        return next(((known, 0.3) for known in sessions if known.has_turns and _is_recent(memory, known, sighting.started_ns)), None)
    return None


def is_aside(memory: Memory, sighting: Sighting) -> bool:
    """Whether what looks like a turn is asked on the side: it offers no tools, or is not streamed and by another model, unlike the turns
    of its client; and is no sub-agent's beginning.
    """
    if sighting.kind != "turn" or sighting.offers_tools or is_partial(sighting.signs) or not (sighting.client or sighting.pid):
        return False
    known = _own_session(memory, sighting)
    turn = known.last_turn if known else None
    if known is None or turn is None:
        return False
    if not is_fresh(sighting):
        return known.offers_tools and sighting.talk[-1].role == "user" and not sighting.talk[-1].answers and _repeats_all(memory, sighting)
    differs = sighting.is_streamed is False and turn.is_streamed is True and sighting.model != turn.model
    return (known.offers_tools or differs) and claim(memory, sighting, (known.key,)) is None


def _own_session(memory: Memory, sighting: Sighting) -> Known | None:
    """The session that ids name, else the client's latest that has turns."""
    told = names(sighting.signs).session
    if told is not None:
        return memory.sessions.get(memory.aliases.get(told, told))
    return next((known for known in memory.sessions_of(sighting.client, sighting.pid) if known.has_turns), None)


def _repeats_all(memory: Memory, sighting: Sighting) -> bool:
    """Whether a conversation known to offer tools stands before the last message."""
    for depth in range(len(sighting.chain) - 2, -1, -1):
        for number in memory.states.get(sighting.chain[depth], ()):
            return memory.trails[number].offers_tools
    return False


def _asks_first(sighting: Sighting) -> bool:
    """A router is asked before the turn that it is for: with no history, equal words are those of another session."""
    return sighting.kind == "router" and not any(view.role == "assistant" for view in sighting.talk)


def _may_serve(memory: Memory, known: Known, sighting: Sighting) -> bool:
    """A session is given its title once: a second one with the same words is for another session."""
    if sighting.kind != "title":
        return True
    return not any(trail.kind == "title" and not trail.failed for key in known.threads for trail in memory.threads[key].trails[:16])


def _is_recent(memory: Memory, known: Known, now_ns: int) -> bool:
    return any(now_ns - trail.ended_ns <= _RECENT_NS for trail in _recent(memory, known, now_ns))


def adopted(memory: Memory, sighting: Sighting) -> Known | None:
    """The session that a side call opened for this first turn: both hold the user's words."""
    words = said(sighting)
    for known in memory.sessions_of(sighting.client, sighting.pid):
        side = known.side
        if known.has_turns or side is None or sighting.started_ns - side.started_ns > _RECENT_NS:
            continue
        if side.pid is not None and sighting.pid is not None and side.pid != sighting.pid:
            continue
        if len(words) >= _LEAST_WORDS and len(side.said) >= _LEAST_WORDS and (words in side.said or side.said in words):
            return known
    return None


def said(sighting: Sighting) -> str:
    """The user's last words."""
    for view in reversed(sighting.talk):
        if view.role == "user" and view.texts:
            return plain(view.texts[-1])
    return ""


def _recent(memory: Memory, known: Known, before_ns: int) -> list[Trail]:
    found: list[Trail] = []
    for key in known.threads:
        trails = memory.threads[key].trails
        turns = [trail for trail in trails[-2 * _RECENT_TURNS :] if trail.kind in THREAD_KINDS]
        found += [trail for trail in turns[-_RECENT_TURNS:] if trail.started_ns <= before_ns]
        found += [trail for trail in trails[:2] if trail.kind in THREAD_KINDS and trail.started_ns <= before_ns]
    return found


def _repeats(text: str, trail: Trail) -> bool:
    if len(trail.said) >= _LEAST_WORDS and trail.said in text:
        return True
    return len(trail.reply_text) >= _LEAST_REPLY and trail.reply_text in text
