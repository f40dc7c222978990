"""Places one exchange after the other: which session, which thread, after what, with the evidence it was decided by.

Ids on the wire decide where there are any; else what the request repeats of earlier ones; else the words by which another agent started
it. Pure; told each exchange once, in order of start.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from storage.records import Gap, Join, Placement
from tracer.identity.continuation import Continuation, continuation, fresh_views, plausible, repetition, retried
from tracer.identity.decided import Verdict, session_of, thread_in
from tracer.identity.dependencies import compacted, dependencies, since
from tracer.identity.gaps import gap, tool_times
from tracer.identity.joining import in_background
from tracer.identity.kinds import THREAD_KINDS
from tracer.identity.memory import Memory, Sighting, Thread, Trail, plain
from tracer.identity.names import Names, aliases, is_partial, names
from tracer.identity.sides import adopted, is_aside, said, served
from tracer.identity.spawning import Claim, claim, claim_by_name, is_fresh

_OF_A_THREAD = THREAD_KINDS | {"compaction", "count_tokens"}
"""Kinds whose prompt is that of a thread: it tells which."""
_MOST_TOKENS = 64
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """A decision. `previous`: the call it goes on from; `claim`: the tool call that started it; `parent`: thread that did."""

    session: str
    thread: str
    source: str
    confidence: float
    previous: Trail | None = None
    claim: Claim | None = None
    parent: str | None = None
    parent_call: Trail | None = None
    agent: str | None = None
    found_in: str | None = None
    """The session that the signals gave, where the user decided otherwise."""


class Identity:
    """Remembers what was placed."""

    def __init__(self, remembered: Iterable[Trail] = (), verdicts: Sequence[Verdict] = ()) -> None:
        self.memory = Memory()
        self._verdicts = verdicts
        for trail in remembered:
            self.memory.remember(trail)
        self.memory.corrections.clear()

    def recall(self, trails: Iterable[Trail]) -> None:
        """Remembers what was placed before, whole sessions at a time."""
        self.memory.recall(trails)
        self.memory.corrections.clear()

    def place(self, sighting: Sighting) -> Trail:
        """Where the exchange belongs, and what is remembered of it."""
        if is_aside(self.memory, sighting):
            sighting = replace(sighting, kind="side")
        match = self._decided(sighting, self._match(sighting))
        thread = self.memory.threads.get(match.thread)
        attempt = retried(self.memory, sighting, thread)
        previous = attempt or self._previous(sighting, thread, match)
        after, joins = dependencies(self.memory, sighting, thread, previous)
        gap_ns = since(sighting, after)
        before, compaction = compacted(sighting, thread, after)
        placement = replace(
            _placement(sighting, match, thread),
            after=tuple(sorted(trail.id for trail in after)),
            gap_ns=gap_ns,
            gap=self._gap(sighting, match, after, joins),
            joins=(*joins, *in_background(self.memory, sighting, match.thread, match.claim.trail if match.claim else None)),
            retry_of=attempt.id if attempt else None,
            forked_from=self._forked_from(sighting, match),
            compaction_of=before,
            compacted_by=compaction,
        )
        trail = self._trail(sighting, placement, match)
        self.memory.remember(trail)
        return trail

    def _decided(self, sighting: Sighting, match: _Match) -> _Match:
        """What the user said of the session beats what was found."""
        session = session_of(self._verdicts, match.session, (sighting.started_ns, sighting.exchange_id))
        if session == match.session:
            return match
        thread = thread_in(match.thread, match.session, session)
        parent = match.parent and thread_in(match.parent, match.session, session)
        return replace(match, session=session, thread=thread, parent=parent, source="user", confidence=1.0, found_in=match.session)

    def _gap(self, sighting: Sighting, match: _Match, after: Sequence[Trail], joins: Sequence[Join]) -> Gap:
        """Whose time it was until this call; a sub-agent's beginning is its parent's program's."""
        gap_ns = since(sighting, after)
        thread = self.memory.threads.get(match.thread)
        if match.source == "spawn" or (thread is None and match.parent is not None):
            return Gap(harness_ns=gap_ns)
        fresh = fresh_views(self.memory, sighting, thread) if thread else sighting.talk
        is_turn = thread is not None and sighting.kind in THREAD_KINDS
        tools = tuple(tool_times(self.memory, sighting.signs, thread, fresh)) if thread is not None and is_turn else ()
        found = gap(sighting.kind, gap_ns, after, (fresh, joins, tools))
        is_driven = thread is not None and thread.parent is not None and found.human_ns is not None
        return Gap(harness_ns=found.human_ns, tools=tools) if is_driven else found

    def _forked_from(self, sighting: Sighting, match: _Match) -> str | None:
        """The session whose conversation a new one repeats, answers included."""
        if match.session in self.memory.sessions or sighting.kind not in THREAD_KINDS or is_fresh(sighting):
            return None
        found = continuation(self.memory, sighting, lambda trail: plausible(sighting, trail))
        return found.trail.placement.session_key if found is not None else None

    def corrections(self) -> list[Placement]:
        """Placements given out earlier that have moved since: an exchange was read after later ones of its thread."""
        found = list(self.memory.corrections.values())
        self.memory.corrections.clear()
        return found

    def _previous(self, sighting: Sighting, thread: Thread | None, match: _Match) -> Trail | None:
        """What it waited for: the call it goes on from, else its thread's last, else what started it; a side call: the last turn ended."""
        if sighting.kind in THREAD_KINDS:
            if match.previous is not None:
                return match.previous
            last = thread.before(sighting.started_ns, THREAD_KINDS) if thread else None
            return last or match.parent_call
        turns = thread.trails if thread else ()
        return next((trail for trail in reversed(turns) if trail.kind in THREAD_KINDS and trail.ended_ns <= sighting.started_ns), None)

    # ---- by ids ------------------------------------------------------------------------------------------------------

    def _match(self, sighting: Sighting) -> _Match:
        told = names(sighting.signs)
        label = sighting.signs.get("origin:label")
        if label is not None:
            return self._labelled(sighting, f"label:{label}", told)
        if told.session is None:
            return self._by_content(sighting)
        session = self.memory.aliases.get(told.session, told.session)
        if told.thread is None and session != told.session and f"{session}/{told.session}" in self.memory.threads:
            told = replace(told, thread=told.session)
        if told.thread is not None:
            return self._named_agent(sighting, session, told)
        main = _Match(session=session, thread=f"{session}/main", source=told.source, confidence=told.confidence, agent="main")
        if sighting.kind not in _OF_A_THREAD or (told.complete and not self._may_be_an_agent(sighting, session)):
            return main
        return self._inside(sighting, session, told) or self._session_of_an_agent(sighting, session, told) or main

    def _labelled(self, sighting: Sighting, session: str, told: Names) -> _Match:
        """A run wrapper said whose this is: its session holds whatever the ids say, each as a thread."""
        main = _Match(session=session, thread=f"{session}/main", source="label", confidence=1.0, agent="main")
        if told.thread is not None:
            match = self._named_agent(sighting, session, told)
            return replace(match, source="label", confidence=1.0)
        if sighting.kind not in _OF_A_THREAD or (told.complete and not self._may_be_an_agent(sighting, session)):
            return main
        match_inside = self._inside(sighting, session, told)
        return replace(match_inside, source="label", confidence=1.0) if match_inside else main

    def _named_agent(self, sighting: Sighting, session: str, told: Names) -> _Match:
        """A sub-agent with an id of its own; its first request also looks for the tool call that started it."""
        key = f"{session}/{told.thread}"
        known = self.memory.threads.get(key)
        parent = None
        if told.parent is not None:
            parent = f"{session}/main" if told.parent == session else f"{session}/{told.parent}"
        found = (
            None
            if known
            else claim(self.memory, sighting, (session,), parent)
            or claim_by_name(self.memory, sighting, parent or f"{session}/main", told.agent)
        )
        parent = parent or (known.parent if known else None) or (found.trail.placement.thread_key if found else f"{session}/main")
        return _Match(
            session=session,
            thread=key,
            source=told.source,
            confidence=told.confidence,
            claim=found,
            parent=parent,
            parent_call=found.trail if found else self._likely_parent(sighting, parent),
            agent=told.agent or (known.agent if known else None) or _agent_of(found) or "sub-agent",
        )

    def _may_be_an_agent(self, sighting: Sighting, session: str) -> bool:
        """Whether a client that names its agents has left one out: older versions name the session only."""
        known = self.memory.sessions.get(session)
        if known is None:
            return is_fresh(sighting)
        if any(self.memory.threads[key].trails[0].placement.source == "spawn" for key in known.threads):
            return True
        return is_fresh(sighting) and claim(self.memory, sighting, (session,)) is not None

    def _session_of_an_agent(self, sighting: Sighting, session: str, told: Names) -> _Match | None:
        """A new session id whose first words are those of a tool call that starts agents: the sub-agent has a session of its own."""
        if session in self.memory.sessions or not is_fresh(sighting) or sighting.kind not in THREAD_KINDS:
            return None
        recent = [known.key for known in self.memory.sessions_of(sighting.client, sighting.pid)]
        found = claim(self.memory, sighting, recent, only_agents=True)
        if found is None:
            return self._unclaimed(sighting, session, told) if told.is_subagent else None
        match = self._started(sighting, found)
        return replace(match, thread=f"{match.session}/{told.session}")

    def _likely_parent(self, sighting: Sighting, parent: str) -> Trail | None:
        """The parent's latest answer that had ended, where no words tell which one started the agent."""
        thread = self.memory.threads.get(parent)
        ended = (trail for trail in reversed(thread.trails if thread else ()) if trail.ended_ns <= sighting.started_ns)
        return next((trail for trail in ended if trail.kind in THREAD_KINDS), None)

    # ---- by content --------------------------------------------------------------------------------------------------

    def _inside(self, sighting: Sighting, session: str, told: Names) -> _Match | None:
        """Which thread of a known session; None where nothing tells."""
        if session not in self.memory.sessions:
            return None
        found = continuation(self.memory, sighting, lambda trail: trail.placement.session_key == session)
        if found is not None:
            return self._going_on(sighting, found)
        started = claim(self.memory, sighting, (session,))
        if started is not None:
            return self._started(sighting, started)
        if told.is_subagent and is_fresh(sighting):
            return self._unclaimed(sighting, session, told)
        alike = self._alike(session, sighting)
        if alike is not None:
            return _Match(session=session, thread=alike.key, source="preamble", confidence=0.5)
        return self._unclaimed(sighting, session, told) if told.is_subagent else None

    def _by_content(self, sighting: Sighting) -> _Match:
        look = continuation if sighting.kind in _OF_A_THREAD or sighting.kind == "router" else repetition
        found = look(self.memory, sighting, lambda trail: plausible(sighting, trail))
        if found is not None:
            return self._going_on(sighting, found)
        recent = [known.key for known in self.memory.sessions_of(sighting.client, sighting.pid)]
        started = claim(self.memory, sighting, recent)
        if started is not None:
            return self._started(sighting, started)
        if sighting.kind in _OF_A_THREAD:
            known = adopted(self.memory, sighting)
            if known is not None:
                return _Match(session=known.key, thread=known.threads[0], source="text", confidence=0.6, agent="main")
        if sighting.kind not in THREAD_KINDS:
            serving = served(self.memory, sighting)
            if serving is not None:
                key, confidence = serving[0].key, serving[1]
                return _Match(session=key, thread=serving[0].threads[0], source="text", confidence=confidence)
        session = f"{sighting.client or 'unknown'}-{_base36(sighting.started_ns)}"
        return _Match(session=session, thread=f"{session}/main", source="first", confidence=0.5, agent="main")

    def _going_on(self, sighting: Sighting, found: Continuation) -> _Match:
        """The thread of the call gone on from, unless this is an agent of its own behind a copy of the conversation."""
        before = found.trail
        place = before.placement
        if sighting.kind == "memory" and before.kind != "memory":
            key = f"{place.session_key}/memory-{_base36(sighting.started_ns)}"
            last = self.memory.threads[place.thread_key].before(sighting.started_ns, THREAD_KINDS) or before
            return _Match(
                session=place.session_key, thread=key, source=found.source, confidence=found.confidence, parent=place.thread_key,
                parent_call=last, agent="memory",
            )  # fmt: skip
        return _Match(
            session=place.session_key, thread=place.thread_key, source=found.source, confidence=found.confidence,
            previous=before if before.kind in THREAD_KINDS else None,
        )  # fmt: skip

    def _started(self, sighting: Sighting, found: Claim) -> _Match:
        """A sub-agent's first request, or a side call for one."""
        parent = found.trail.placement
        if sighting.kind not in THREAD_KINDS:
            return _Match(session=parent.session_key, thread=parent.thread_key, source="spawn", confidence=0.6)
        call_id = found.trail.spawns[found.index].call_id if found.is_certain else None
        return _Match(
            session=parent.session_key,
            thread=f"{parent.session_key}/{call_id or f'sub-{_base36(sighting.started_ns)}-{sighting.exchange_id}'}",
            source="spawn",
            confidence=0.8 if found.is_certain else 0.7,
            claim=found,
            parent=parent.thread_key,
            parent_call=found.trail,
            agent=_agent_of(found) or "sub-agent",
        )

    def _alike(self, session: str, sighting: Sighting) -> Thread | None:
        """The thread that spoke last under the same instructions, its history rewritten since."""
        threads = [self.memory.threads[key] for key in self.memory.sessions[session].threads]
        alike = [
            thread for thread in threads if any(t.kind in THREAD_KINDS and t.preamble == sighting.preamble for t in thread.trails[-4:])
        ]
        return max(alike, key=lambda thread: thread.trails[-1].started_ns, default=None)

    def _unclaimed(self, sighting: Sighting, session: str, told: Names) -> _Match:
        """A sub-agent by its own word, started by nobody knows which call."""
        parent = self._likely_parent(sighting, f"{session}/main")
        return _Match(
            session=session,
            thread=f"{session}/sub-{_base36(sighting.started_ns)}-{sighting.exchange_id}",
            source=told.source,
            confidence=0.5,
            parent=f"{session}/main",
            parent_call=parent,
            agent=told.agent or "sub-agent",
        )

    def _trail(self, sighting: Sighting, placement: Placement, match: _Match) -> Trail:
        thread = self.memory.threads.get(match.thread)
        fresh = fresh_views(self.memory, sighting, thread) if thread else sighting.talk
        tokens = [token for view in fresh for token in (*view.calls, *view.answers)]
        reply = sighting.reply
        return Trail(
            placement=placement,
            started_ns=sighting.started_ns,
            ended_ns=sighting.ended_ns,
            failed=sighting.failed,
            pid=sighting.pid,
            state=sighting.chain[-1] if sighting.chain and not is_partial(sighting.signs) else b"",
            last=sighting.talk[-1].digest if sighting.talk else b"",
            preamble=sighting.preamble,
            body_digest=sighting.body_digest,
            said=said(sighting),
            reply_text=plain(reply.text),
            reply_tokens=frozenset(sorted(reply.tokens)[:_MOST_TOKENS]),
            fresh_tokens=frozenset(tokens[-_MOST_TOKENS:]) - reply.tokens,
            spawns=reply.spawns,
            claimed=match.claim.place if match.claim and sighting.kind in THREAD_KINDS else None,
            response_id=sighting.response_id,
            aliases=aliases(sighting.signs) if "origin:label" not in sighting.signs else (),
            joins=placement.joins,
            found_in=match.found_in,
            offers_tools=sighting.offers_tools,
            is_streamed=sighting.is_streamed,
            model=sighting.model,
        )


def _placement(sighting: Sighting, match: _Match, thread: Thread | None) -> Placement:
    parent_exchange = match.parent_call.id if match.parent_call and match.parent else None
    first = thread.trails[0].placement if thread and thread.trails else None
    return Placement(
        exchange_id=sighting.exchange_id,
        session_key=match.session,
        thread_key=match.thread,
        number=1 + _earlier(thread, sighting),
        kind=sighting.kind,
        client=sighting.client,
        agent=(thread.agent if thread else None) or match.agent,
        parent_thread_key=(thread.parent if thread else None) or match.parent,
        parent_exchange_id=first.parent_exchange_id if first else parent_exchange,
        parent_call=thread.parent_call if thread else _call_of(match),
        source=match.source,
        confidence=match.confidence,
    )


def _earlier(thread: Thread | None, sighting: Sighting) -> int:
    """Calls of this kind in the thread that started before."""
    trails = thread.trails if thread else ()
    if not trails:
        return 0
    for trail in reversed(trails):
        if trail.kind == sighting.kind and (trail.started_ns, trail.id) < (sighting.started_ns, sighting.exchange_id):
            return trail.placement.number
    return 0


def _call_of(match: _Match) -> str | None:
    """The tool call that started the thread, where no other fits as well."""
    found = match.claim
    return found.trail.spawns[found.index].call_id if found is not None and found.is_certain else None


def _agent_of(found: Claim | None) -> str | None:
    return found.trail.spawns[found.index].agent if found else None


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _DIGITS[rest] + digits
    return digits or "0"
