"""Where a sub-agent's result comes back to the agent that started it, and whether that one waited for it.

Pure, over what identity remembers. Of agents that began alike, what came back tells which tool call started which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from storage.records import ExchangeId, Join
from tracer.identity.canonical import View
from tracer.identity.continuation import fresh_views
from tracer.identity.kinds import THREAD_KINDS
from tracer.identity.memory import Memory, Sighting, Thread, Trail, plain

_LEAST_REPLY = 8
FOREGROUND, BACKGROUND = "foreground", "background"


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a request shows of a sub-agent: the tool call whose result names it or holds its words; whether its own call was answered."""

    by_call: str | None
    is_answered: bool
    has_words: bool


def joined(memory: Memory, sighting: Sighting, thread: Thread) -> tuple[list[Trail], list[Join]]:
    """The last turns of sub-agents whose results this request carries, and what it shows of this thread's sub-agents."""
    ended: list[Trail] = []
    joins: list[Join] = []
    if not thread.children:
        return ended, joins
    fresh = [view for view in fresh_views(memory, sighting, thread) if view.role != "assistant"]
    for key in thread.children:
        child = memory.threads[key]
        last = child.before(sighting.started_ns, THREAD_KINDS)
        if last is None or last.kind == "memory" or (last.id in memory.joined and last.kind != "prewarm"):
            continue
        shown = _shown(memory, fresh, child, last)
        if shown.by_call is not None:
            _settle(memory, child, shown.by_call)
        is_told = shown.is_answered or shown.by_call is not None or shown.has_words
        if is_told and last.kind != "prewarm" and last.ended_ns <= sighting.started_ns:
            ended.append(last)
            joins.append(Join(key, child.mode or FOREGROUND, is_joined=True))
        elif is_told and child.mode is None:
            joins.append(Join(key, BACKGROUND, is_joined=False))
    return ended, joins


def in_background(memory: Memory, sighting: Sighting, thread_key: str, spawned_by: Trail | None) -> list[Join]:
    """A sub-agent's turn, where the agent that started it has gone on already."""
    child = memory.threads.get(thread_key)
    if sighting.kind not in THREAD_KINDS:
        return []
    if child is not None:
        went_on = child.mode == FOREGROUND and child.joined_ns is not None and child.joined_ns < sighting.started_ns
    else:
        last = memory.threads[spawned_by.placement.thread_key].before(sighting.started_ns, ("turn",)) if spawned_by else None
        went_on = last is not None and spawned_by is not None and last.started_ns > spawned_by.started_ns
    return [Join(thread_key, BACKGROUND, is_joined=False)] if went_on else []


def call_of(memory: Memory, claimed: tuple[int, int] | None) -> str | None:
    """Id of the tool call at a place (exchange, index)."""
    trail = memory.trails.get(ExchangeId(claimed[0])) if claimed is not None else None
    return trail.spawns[claimed[1]].call_id if trail is not None and claimed is not None else None


def _shown(memory: Memory, fresh: Sequence[View], child: Thread, last: Trail) -> _Shown:
    call_id = child.parent_call or call_of(memory, child.trails[0].claimed)
    own_id = child.key.rpartition("/")[2]
    others = tuple(_ids_of_others(memory, child))
    by_call, has_words = None, False
    for answered, text in _results(fresh):
        speaks = any(words in plain(text, 4000) for words in _words(last)) and not any(other in text for other in others)
        has_words |= speaks
        if answered is not None and (own_id in text or (speaks and not _fits_others(memory, child, text))):
            by_call = by_call or answered
    is_answered = call_id is not None and any(call_id in view.answers or any(call_id in text for text in view.texts) for view in fresh)
    return _Shown(by_call, is_answered or (call_id is None and _goes_on_from_spawn(memory, fresh, child)), has_words)


def _goes_on_from_spawn(memory: Memory, fresh: Sequence[View], child: Thread) -> bool:
    """Whether tool results come right behind the answer that started the agent: calls without ids are answered all at once."""
    claimed = child.trails[0].claimed
    parent = memory.threads.get(child.parent or "")
    last = next((trail for trail in reversed(parent.trails if parent else ()) if trail.kind in THREAD_KINDS), None)
    return claimed is not None and last is not None and last.id == claimed[0] and any(view.role == "tool" or view.answers for view in fresh)


def _ids_of_others(memory: Memory, child: Thread) -> Iterator[str]:
    """What names another sub-agent of the same parent: its id, the call that started it."""
    parent = memory.threads.get(child.parent or "")
    for key in parent.children if parent else ():
        if key != child.key:
            sibling = memory.threads[key]
            yield key.rpartition("/")[2]
            if (call_id := sibling.parent_call or call_of(memory, sibling.trails[0].claimed)) is not None:
                yield call_id


def _words(last: Trail) -> Iterator[str]:
    """What a sub-agent said last: its answer, or the arguments of the tool call with which it handed its result over."""
    if len(last.reply_text) >= _LEAST_REPLY:
        yield last.reply_text
    for spawn in last.spawns:
        yield from (text for text in (plain(text) for text in spawn.texts) if len(text) >= 3 * _LEAST_REPLY)


def _results(fresh: Sequence[View]) -> Iterator[tuple[str | None, str]]:
    """(tool call answered, text), as far as it can be told which; the user's texts answer none."""
    for view in fresh:
        is_paired = len(view.answers) == len(view.results)
        for place, text in enumerate(view.results):
            answered = view.answers[place] if is_paired else view.answers[0] if len(view.answers) == 1 else None
            yield answered, text
        yield from ((None, text) for text in view.texts)


def _fits_others(memory: Memory, child: Thread, text: str) -> bool:
    """Whether another sub-agent of the same parent said the same: then words do not tell whose result it is."""
    siblings = memory.threads[child.parent].children if child.parent in memory.threads else ()
    words = plain(text, 4000)
    return any(
        last.reply_text in words
        for key in siblings
        if key != child.key and len((last := memory.threads[key].trails[-1]).reply_text) >= _LEAST_REPLY
    )


def _settle(memory: Memory, child: Thread, call_id: str) -> None:
    """The tool call that started a sub-agent has become known."""
    first = child.trails[0]
    if child.parent_call == call_id:
        return
    child.parent_call = call_id
    child.trails[0] = memory.trails[first.id] = moved = replace(first, placement=replace(first.placement, parent_call=call_id))
    memory.corrections[first.id] = moved.placement
