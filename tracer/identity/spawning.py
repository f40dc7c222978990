"""Finds the tool call that started a sub-agent: its words open the sub-agent's conversation.

Pure, over what identity remembers. Which agents there are is told by others; this only knows answers and first words.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tracer.identity.memory import Memory, Sighting, Trail

_LEAST_WORDS = 8
_LEAST_WORDS_OF_ANY_TOOL = 24
"""So long must an argument be to count when the tool's name says nothing of agents: short ones are equal by chance."""
_LEAST_SPACES = 4
_STARTS_AGENTS = re.compile(r"agent|task|spawn|delegat|assign|worker|dispatch", re.IGNORECASE)
_RECENT = 200
"""Answers of one session looked at, the newest first."""
_RECENT_NS = 3_600_000_000_000
_AT_ONCE_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Claim:
    """The answer and the place of the tool call in it. `is_certain`: no other call of that answer said the same."""

    trail: Trail
    index: int
    is_certain: bool

    @property
    def place(self) -> tuple[int, int]:
        """What marks the call as taken."""
        return self.trail.id, self.index


def claim(
    memory: Memory, sighting: Sighting, sessions: Iterable[str], parent: str | None = None, *, only_agents: bool = False
) -> Claim | None:
    """The tool call, not yet taken by another sub-agent, whose words open this conversation. `parent`: only of that thread.

    The latest; of those that were given at about the same time, the first whose agent has gone no further: equal agents start in order.
    """
    opening = _opening(sighting)
    if not opening:
        return None
    found: list[Claim] = []
    for key in sessions:
        for trail in _answers(memory, key, sighting.started_ns):
            if parent is not None and trail.placement.thread_key != parent:
                continue
            taken = _matching(memory, trail, opening, only_agents=only_agents)
            if taken is not None:
                found.append(taken)
                break
    own = [each for each in found if each.trail.pid is not None and each.trail.pid == sighting.pid]
    return _chosen(memory, own or found)


def _chosen(memory: Memory, found: list[Claim]) -> Claim | None:
    if len(found) < 2:
        return found[0] if found else None
    found.sort(key=lambda each: each.trail.ended_ns)
    latest = found[-1]
    near = [each for each in found if latest.trail.ended_ns - each.trail.ended_ns <= _AT_ONCE_NS and _is_open(memory, each.trail)]
    return near[0] if near else latest


def _is_open(memory: Memory, trail: Trail) -> bool:
    """Whether its thread has not gone on since: it waits for what its tool calls give."""
    return memory.threads[trail.placement.thread_key].trails[-1].id == trail.id


def is_fresh(sighting: Sighting) -> bool:
    """Whether a conversation begins here: the model has not spoken yet."""
    return not any(view.role in ("assistant", "tool") for view in sighting.talk)


def _opening(sighting: Sighting) -> list[str]:
    """The user's first words; none when the model has spoken already."""
    found: list[str] = []
    for view in sighting.talk:
        if view.role in ("assistant", "tool"):
            return []
        found += [text.strip() for text in view.texts if view.role == "user"]
    return found


def _answers(memory: Memory, session: str, before_ns: int) -> Iterator[Trail]:
    known = memory.sessions.get(session)
    trails = [trail for key in (known.threads if known else ()) for trail in memory.threads[key].trails[-_RECENT:] if trail.spawns]
    trails.sort(key=lambda trail: trail.ended_ns, reverse=True)
    return (trail for trail in trails[:_RECENT] if trail.started_ns < before_ns <= trail.ended_ns + _RECENT_NS)


def _matching(memory: Memory, trail: Trail, opening: list[str], *, only_agents: bool) -> Claim | None:
    fitting: list[int] = []
    for index, spawn in enumerate(trail.spawns):
        starts_agents = _STARTS_AGENTS.search(spawn.name) is not None
        if (starts_agents or not only_agents) and _opens(spawn.texts, opening, starts_agents):
            fitting.append(index)
    free = [index for index in fitting if (trail.id, index) not in memory.claims]
    if not free:
        return None
    return Claim(trail, free[0], len(fitting) == 1)


def _opens(words: tuple[str, ...], opening: list[str], starts_agents: bool) -> bool:
    """Whether an argument of the call is one of the first words, or stands in them; of a tool of any other name only a sentence does."""
    for word in words:
        if len(word) < (_LEAST_WORDS if starts_agents else _LEAST_WORDS_OF_ANY_TOOL):
            continue
        if word in opening:
            return True
        is_sentence = word.count(" ") >= _LEAST_SPACES
        if (starts_agents or is_sentence) and any(word in text for text in opening):
            return True
    return False


def claim_by_name(memory: Memory, sighting: Sighting, parent: str | None, agent: str | None) -> Claim | None:
    """The latest tool call of the parent's, not yet taken, that asks for an agent of this name (its words may be encrypted)."""
    thread = memory.threads.get(parent or "")
    name = (agent or "").rpartition("/")[2]
    for trail in reversed(thread.trails[-_RECENT:] if thread and name else ()):
        if trail.started_ns >= sighting.started_ns:
            continue
        fitting = [index for index, spawn in enumerate(trail.spawns) if spawn.agent == name and _STARTS_AGENTS.search(spawn.name)]
        free = [index for index in fitting if (trail.id, index) not in memory.claims]
        if free:
            return Claim(trail, free[0], len(fitting) == 1)
    return None
