"""Whose time the gap before a call was: that of tools, of the human, or of the agent's own program.

Pure, over what identity remembers. A gap is the tools' where the call carries their results, the human's where it carries new words of
the user, and the program's where it does neither (back-off before a new try, handing a sub-agent's result over, going on after a router).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from storage.records import Gap, Join, ToolTime
from tracer.identity.canonical import View
from tracer.identity.kinds import THREAD_KINDS
from tracer.identity.memory import Memory, Thread, Trail

DURATIONS = "header:x-claude-code-prev-tool-durations"
_DURATION = re.compile(r"([^=,;\s][^=,;]*?)\s*=\s*(\d+(?:\.\d+)?)")
_ASKED_BY_HUMANS = frozenset(("turn", "router", "title"))
"""Kinds that begin with what a human typed; summaries and the like are the program's own idea."""
_MILLISECOND_NS = 1_000_000


def gap(kind: str, gap_ns: int | None, after: Sequence[Trail], seen: tuple[Sequence[View], Sequence[Join], tuple[ToolTime, ...]]) -> Gap:
    """The parts of a gap of a call of this kind. `seen`: what is new in the request, what it shows of sub-agents, its tools' times."""
    fresh, joins, tools = seen
    if gap_ns is None:
        return Gap()
    latest = max(after, key=lambda trail: trail.ended_ns)
    is_joined = latest.placement.thread_key in {join.thread_key for join in joins}
    is_awaited = latest.kind not in THREAD_KINDS or any(trail.failed == "upstream" for trail in after)
    if is_joined or is_awaited or kind not in _ASKED_BY_HUMANS:
        return Gap(harness_ns=gap_ns, tools=tools)
    fresh = _behind_the_answer(fresh)
    has_results = any(view.role == "tool" or view.answers for view in fresh)
    if not joins and _has_words(fresh[-1:] if has_results else fresh):
        return Gap(human_ns=gap_ns, tools=tools)
    return _of_tools(gap_ns, tools) if has_results else Gap(harness_ns=gap_ns, tools=tools)


def _has_words(views: Sequence[View]) -> bool:
    """Whether the user speaks: results and notices in tags, which agents send in the user's name, are none."""
    return any(view.role == "user" and not view.answers and any(not text.lstrip().startswith("<") for text in view.texts) for view in views)


def _behind_the_answer(fresh: Sequence[View]) -> Sequence[View]:
    """What came after the model last spoke: where a conversation is resumed, all of it may be new."""
    for place in range(len(fresh) - 1, -1, -1):
        if fresh[place].role == "assistant":
            return fresh[place + 1 :]
    return fresh


def _of_tools(gap_ns: int, tools: tuple[ToolTime, ...]) -> Gap:
    """All of it, unless the agent measured its tools: what those did not take, side by side or one after the other, was its own."""
    told = [tool.took_ns for tool in tools if tool.source == "header"]
    if not told:
        return Gap(tool_ns=gap_ns, tools=tools)
    took_ns = sum(told) if sum(told) <= gap_ns else max(told)
    return Gap(tool_ns=took_ns, harness_ns=gap_ns - took_ns, tools=tools)


def tool_times(memory: Memory, signs: Mapping[str, str], thread: Thread, fresh: Sequence[View]) -> Iterator[ToolTime]:
    """How long each tool call took whose result came with this request, as far as that is known."""
    last = next((trail for trail in reversed(thread.trails) if trail.kind in THREAD_KINDS), None)
    told = _told(signs.get(DURATIONS, ""))
    answered = frozenset(call_id for view in fresh for call_id in view.answers)
    for index, spawn in enumerate(last.spawns if last else ()):
        if spawn.call_id is not None and spawn.call_id not in answered:
            continue
        agent = _agent_of(memory, thread, (last.id if last else 0, index), spawn.call_id)
        if agent is not None:
            yield ToolTime(spawn.call_id, spawn.name, agent.trails[-1].ended_ns - agent.trails[0].started_ns, "thread")
        elif told[spawn.name]:
            yield ToolTime(spawn.call_id, spawn.name, told[spawn.name].pop(0), "header")


def _told(text: str) -> dict[str, list[int]]:
    """Claude Code's own measure: `Bash=572,Read=31`, milliseconds in the order of the calls."""
    found: dict[str, list[int]] = defaultdict(list)
    for name, value in _DURATION.findall(text):
        found[name].append(round(float(value) * _MILLISECOND_NS))
    return found


def _agent_of(memory: Memory, thread: Thread, place: tuple[int, int], call_id: str | None) -> Thread | None:
    """The sub-agent that a tool call started."""
    for key in thread.children:
        child = memory.threads[key]
        if child.trails and (child.trails[0].claimed == place or (call_id is not None and child.parent_call == call_id)):
            return child
    return None
