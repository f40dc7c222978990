"""Finds the call that a request goes on from, by what the request repeats; and tells a new try of a failed call from a new turn.

Pure, over what identity remembers. Does not look at ids of sessions or agents.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from storage.records import ExchangeId
from tracer.identity.canonical import View
from tracer.identity.kinds import THREAD_KINDS, is_continuation
from tracer.identity.memory import Memory, Sighting, Thread, Trail, plain

_ANSWER_ELEMENTS = 8
"""So many elements may one answer become in the next request's history."""
_CONTRADICTED = -2
_LATE_NS = 50_000_000
"""A try may be seen to start this long before the failed one is seen to end: they are two connections."""
_LEAST_WORDS = 4
_LEAST_SUMMARY = 60
"""Characters of an answer on the side that, told again at the head of a conversation, make it a summary."""
_TAG = re.compile(r"</?[A-Za-z_][\w\-]*>")


@dataclass(frozen=True, slots=True)
class Continuation:
    """The call gone on from, how it was recognised and how sure that is."""

    trail: Trail
    source: str
    confidence: float


type Allowed = Callable[[Trail], bool]


def plausible(sighting: Sighting, trail: Trail) -> bool:
    """Whether what a call repeats can be that of this one: no session is told by its words alone to change its client."""
    client = trail.placement.client
    return client is None or sighting.client is None or client == sighting.client


def continuation(memory: Memory, sighting: Sighting, allowed: Allowed) -> Continuation | None:
    """The call that this one goes on from, among those allowed; None when it repeats nothing known."""
    return (
        _by_lineage(memory, sighting, allowed)
        or repetition(memory, sighting, allowed)
        or _by_prefix(memory, sighting, allowed)
        or _by_call_ids(memory, sighting, allowed)
        or _by_summary(memory, sighting, allowed)
        or _by_texts(memory, sighting, allowed)
    )


def _by_lineage(memory: Memory, sighting: Sighting, allowed: Allowed) -> Continuation | None:
    """The request names the answer it goes on from."""
    for name in ("body:previous_response_id", "body:previous_message_id"):
        trail = memory.trails.get(memory.responses.get(sighting.signs.get(name, ""), ExchangeId(-1)))
        if trail is not None and allowed(trail):
            return Continuation(trail, "lineage", 0.95)
    return None


def repetition(memory: Memory, sighting: Sighting, allowed: Allowed) -> Continuation | None:
    """The very prompt of a call of the same kind that failed and was not tried again."""
    for trail in _same_state(memory, sighting, len(sighting.chain) - 1):
        is_untried = trail.failed == "upstream" and trail.id not in memory.retried and trail.kind == sighting.kind
        if is_untried and allowed(trail) and not _is_of_another_process(trail, sighting):
            return Continuation(trail, "prefix", 0.8)
    return None


def _by_prefix(memory: Memory, sighting: Sighting, allowed: Allowed) -> Continuation | None:
    """The longest known prompt that this one begins with, where its answer does not contradict what follows."""
    for depth in range(len(sighting.chain) - 2, -1, -1):
        best: tuple[int, Trail] | None = None
        for trail in _same_state(memory, sighting, depth):
            if (
                trail.kind in THREAD_KINDS
                and allowed(trail)
                and (score := _agreement(trail, sighting, depth)) > _CONTRADICTED
                and (best is None or score > best[0])
            ):
                best = score, trail
        if best is not None:
            return Continuation(best[1], "prefix", 0.95 if best[0] >= 4 else 0.7)
    return None


def _same_state(memory: Memory, sighting: Sighting, depth: int) -> Iterator[Trail]:
    """Calls whose whole prompt is this one's first `depth` + 1 elements, the newest first."""
    if 0 <= depth < len(sighting.chain):
        for number in reversed(memory.states.get(sighting.chain[depth], ())):
            trail = memory.trails[number]
            if trail.started_ns <= sighting.started_ns:
                yield trail


def _agreement(trail: Trail, sighting: Sighting, depth: int) -> int:
    """How well what follows the shared prompt fits that call's answer, instructions and client."""
    answer = _answer(sighting.talk, depth + 1)
    tokens = frozenset[str]().union(*(view.tokens for view in answer))
    score = 2 if trail.preamble == sighting.preamble else 0
    if trail.pid is not None and sighting.pid is not None:
        score += 3 if trail.pid == sighting.pid else -4
    if trail.reply_tokens & tokens:
        return score + 8
    if trail.reply_tokens and tokens:
        return score - 6
    said = plain(" ".join(text for view in answer for text in view.texts))
    if said and said == trail.reply_text:
        return score + 4
    return score if answer or trail.failed else score - 1


def _answer(talk: tuple[View, ...], at: int) -> tuple[View, ...]:
    """The elements of the model that stand from `at` on."""
    end = at
    while end < min(len(talk), at + _ANSWER_ELEMENTS) and talk[end].role == "assistant":
        end += 1
    return talk[at:end]


def _by_call_ids(memory: Memory, sighting: Sighting, allowed: Allowed) -> Continuation | None:
    """The latest id or signature in its history that an answer gave; some clients put the tool's name before an id when they resume."""
    for view in reversed(sighting.talk):
        for token in (*view.calls, *view.answers, *sorted(view.tokens)):
            for spelt in (token, token.rpartition("__")[2]):
                trail = memory.trails.get(memory.tokens.get(spelt, ExchangeId(-1)))
                if trail is not None and allowed(trail):
                    return Continuation(trail, "calls", 0.85)
    return None


def _by_summary(memory: Memory, sighting: Sighting, allowed: Allowed) -> Continuation | None:
    """The answer of a compaction stands in its first elements."""
    heads = [plain(text, 4000) for view in sighting.talk[:8] for text in view.texts]
    for known in memory.sessions_of(sighting.client, sighting.pid):
        for key in known.threads:
            for kind, least in (("compaction", _LEAST_WORDS), ("side", _LEAST_SUMMARY)):
                trail = memory.threads[key].before(sighting.started_ns, (kind,))
                summary = _longest_piece(trail.reply_text) if trail is not None and allowed(trail) else ""
                if trail is not None and len(summary) >= least and any(summary in head for head in heads):
                    return Continuation(trail if kind == "compaction" else memory.tell_kind(trail, "compaction"), "text", 0.7)
    return None


def tells_summary(sighting: Sighting, trail: Trail) -> bool:
    """Whether the first elements hold the answer of a compaction."""
    views = sighting.talk[:8]
    summary = _longest_piece(trail.reply_text)
    if len(summary) >= _LEAST_WORDS and any(summary in plain(text, 4000) for view in views for text in view.texts):
        return True
    return bool(trail.reply_tokens & frozenset[str]().union(*(view.tokens for view in sighting.talk)))


def _longest_piece(text: str) -> str:
    """The longest stretch between tags: agents take the tags around a summary away, and what stands in some of them."""
    return max((piece.strip() for piece in _TAG.split(text)), key=len)


def _by_texts(memory: Memory, sighting: Sighting, allowed: Allowed) -> Continuation | None:
    """A question and the answer it got, told again in other surroundings (aider writes its history anew each time)."""
    asked = ""
    best: Trail | None = None
    tokens = any(view.tokens for view in sighting.talk)  # with ids in it, it would have been recognised by them
    for view in sighting.talk:
        text = plain(" ".join(view.texts))
        if view.role == "user" and text:
            asked = plain(view.texts[-1])
        elif view.role == "assistant" and text:
            told = [trail for number in memory.pairs.get((asked, text), ()) if allowed(trail := memory.trails[number])]
            told = [trail for trail in told if len(asked) >= _LEAST_WORDS and not (trail.reply_tokens and tokens)]
            best = max(told, key=lambda trail: (_is_of_process(trail, sighting), trail.started_ns), default=best)
    return Continuation(best, "text", 0.6) if best else None


def _is_of_process(trail: Trail, sighting: Sighting) -> bool:
    return trail.pid is not None and trail.pid == sighting.pid


def _is_of_another_process(trail: Trail, sighting: Sighting) -> bool:
    return trail.pid is not None and sighting.pid is not None and trail.pid != sighting.pid


def fresh_views(memory: Memory, sighting: Sighting, thread: Thread) -> Sequence[View]:
    """The elements that came after what the thread's last turn had sent; all of them where that is not known."""
    last = thread.before(sighting.started_ns, THREAD_KINDS)
    if last is None or last.id not in memory.trails:
        return sighting.talk
    for depth in range(len(sighting.chain) - 1, -1, -1):
        if sighting.chain[depth] == last.state:
            return sighting.talk[depth + 1 :]
    return sighting.talk[-8:]


# ---- tries ---------------------------------------------------------------------------------------------------------


def retried(memory: Memory, sighting: Sighting, thread: Thread | None) -> Trail | None:
    """The attempt that this call repeats: the latest of its kind in the thread, when the upstream failed it and the prompt says so."""
    last = thread.before(sighting.started_ns, (sighting.kind,)) if thread else None
    if last is None or last.failed != "upstream" or last.id in memory.retried or last.ended_ns > sighting.started_ns + _LATE_NS:
        return None
    if last.body_digest == sighting.body_digest or (sighting.chain and last.state == sighting.chain[-1]):
        return last
    if sighting.talk and last.last == sighting.talk[-1].digest:
        return last
    return last if _goes_on_after_break(last, sighting) else None


def _goes_on_after_break(last: Trail, sighting: Sighting) -> bool:
    """The failed prompt again with what had come of its answer, and nothing new from the user."""
    for depth in range(len(sighting.chain) - 2, -1, -1):
        if sighting.chain[depth] == last.state:
            more = sighting.talk[depth + 1 :]
            return all(view.role != "user" or is_continuation(view) for view in more)
    return False
