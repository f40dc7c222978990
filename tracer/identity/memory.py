"""What identity keeps of each exchange it has placed, and the indexes in which the next one finds its predecessor.

A `Trail` is small and can be stored, so that reading goes on where it stopped. Pure; decides nothing.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from storage.records import ExchangeId, Join, Placement
from tracer.identity.canonical import View
from tracer.identity.kinds import THREAD_KINDS

_RECENT_SESSIONS = 64
"""How many of a client's sessions are looked at, the one used last first."""
_SAME_STATE = 32
"""How many exchanges with one and the same prompt are looked at: the newest."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """One tool call of an answer: what it asked for may be the first words of a sub-agent. `texts`: its arguments that are text."""

    call_id: str | None
    name: str
    texts: tuple[str, ...]
    agent: str | None = None
    """The kind of agent asked for, where an argument names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back, as far as the next request can show it again."""

    text: str = ""
    tokens: frozenset[str] = frozenset()
    spawns: tuple[Spawn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One exchange before it is placed. `views`: its elements in prompt order; `chain[i]`: state after i + 1 elements of `talk`.

    `talk` is the conversation: the views without tools and leading system texts. `failed`: client or upstream, who cut it or said no.
    """

    exchange_id: ExchangeId
    started_ns: int
    ended_ns: int
    kind: str
    client: str | None
    failed: str | None
    signs: Mapping[str, str]
    preamble: bytes
    talk: tuple[View, ...]
    chain: tuple[bytes, ...]
    body_digest: bytes
    reply: Reply
    response_id: str | None = None
    offers_tools: bool = False
    is_streamed: bool | None = None
    model: str | None = None

    @property
    def pid(self) -> str | None:
        """The client's process, where it is known."""
        return self.signs.get("origin:pid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """What is remembered of a placed exchange. Times are Unix-epoch ns."""

    placement: Placement
    started_ns: int
    ended_ns: int
    failed: str | None = None
    pid: str | None = None
    state: bytes = b""
    last: bytes = b""
    """Digest of the last element: what this request brought."""
    preamble: bytes = b""
    body_digest: bytes = b""
    said: str = ""
    """The last text of the user, white space taken as one."""
    reply_text: str = ""
    reply_tokens: frozenset[str] = frozenset()
    fresh_tokens: frozenset[str] = frozenset()
    """Ids that this request brought and no answer gave (some clients make their own)."""
    spawns: tuple[Spawn, ...] = ()
    claimed: tuple[int, int] | None = None
    """The exchange and the index of the tool call that started this thread, on its first turn."""
    response_id: str | None = None
    aliases: tuple[str, ...] = ()
    joins: tuple[Join, ...] = ()
    found_in: str | None = None
    """Key of the session that the signals gave, where the user decided otherwise."""
    offers_tools: bool = False
    is_streamed: bool | None = None
    model: str | None = None

    @property
    def id(self) -> ExchangeId:
        """The exchange."""
        return self.placement.exchange_id

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.placement.kind


@dataclass(slots=True)
class Thread:
    """The calls of one agent, in order of start."""

    key: str
    session: str
    agent: str | None
    parent: str | None
    trails: list[Trail] = field(default_factory=list)
    children: list[str] = field(default_factory=list)
    parent_call: str | None = None
    mode: str | None = None
    """foreground, background; None: not known yet."""
    joined_ns: int | None = None
    """When its result had come back."""

    def before(self, started_ns: int, kinds: Iterable[str]) -> Trail | None:
        """The latest call of these kinds that started before."""
        wanted = frozenset(kinds)
        for trail in reversed(self.trails):
            if trail.started_ns < started_ns and trail.kind in wanted:
                return trail
        return None


@dataclass(slots=True)
class Known:
    """One session as far as it is known."""

    key: str
    client: str | None
    threads: list[str] = field(default_factory=list)
    pids: set[str] = field(default_factory=set)
    has_turns: bool = False
    last_turn: Trail | None = None
    """The latest that was read; for what its turns look like."""
    offers_tools: bool = False
    last_ns: int = 0
    side: Trail | None = None
    """The call that opened it, where that was none of the conversation."""


class Memory:
    """All trails and the indexes over them."""

    def __init__(self) -> None:
        self.trails: dict[ExchangeId, Trail] = {}
        self.threads: dict[str, Thread] = {}
        self.sessions: dict[str, Known] = {}
        self.recent: dict[str | None, dict[str, None]] = defaultdict(dict)
        """Session keys of a client, the one used last at the end."""
        self.aliases: dict[str, str] = {}
        self.states: dict[bytes, list[ExchangeId]] = defaultdict(list)
        self.tokens: dict[str, ExchangeId] = {}
        self.responses: dict[str, ExchangeId] = {}
        self.pairs: dict[tuple[str, str], list[ExchangeId]] = defaultdict(list)
        self.claims: set[tuple[int, int]] = set()
        self.retried: set[ExchangeId] = set()
        self.joined: set[ExchangeId] = set()
        self.corrections: dict[ExchangeId, Placement] = {}

    def recall(self, trails: Iterable[Trail]) -> None:
        """Takes in what was placed before, of whole sessions that are not here yet: it stands before what is."""
        clients = set[str | None]()
        for trail in trails:
            if trail.id not in self.trails:
                self.remember(trail, is_old=True)
                clients.add(self.sessions[trail.placement.session_key].client)
        for client in clients:
            self.recent[client] = dict.fromkeys(sorted(self.recent[client], key=lambda key: self.sessions[key].last_ns))

    def remember(self, trail: Trail, *, is_old: bool = False) -> None:
        """Takes a placed exchange into every index. `is_old`: it may be older than what stands there."""
        placement = trail.placement
        self.trails[trail.id] = trail
        thread = self._thread(placement)
        at = bisect_left(thread.trails, (trail.started_ns, trail.id), key=_order)
        insort(thread.trails, trail, key=_order)
        if at + 1 < len(thread.trails):
            self._renumber(thread, trail.kind)
        self._session(trail)
        for alias in trail.aliases:
            self.aliases.setdefault(alias, trail.found_in or placement.session_key)
        self._index(trail)
        if is_old:
            self._put_in_order(trail)
        if placement.retry_of is not None:
            self.retried.add(placement.retry_of)
        self.joined.update(placement.after)
        if trail.claimed is not None:
            self.claims.add(trail.claimed)
        for join in trail.joins:
            if join.thread_key in self.threads:
                child = self.threads[join.thread_key]
                child.mode = join.mode
                child.joined_ns = trail.started_ns if join.is_joined else child.joined_ns

    def _thread(self, placement: Placement) -> Thread:
        thread = self.threads.get(placement.thread_key)
        if thread is None:
            parent = placement.parent_thread_key
            thread = Thread(placement.thread_key, placement.session_key, placement.agent, parent, parent_call=placement.parent_call)
            self.threads[thread.key] = thread
            if parent in self.threads:
                self.threads[parent].children.append(thread.key)
        return thread

    def _session(self, trail: Trail) -> None:
        placement = trail.placement
        known = self.sessions.get(placement.session_key)
        if known is None:
            known = self.sessions[placement.session_key] = Known(placement.session_key, placement.client)
        if placement.thread_key not in known.threads:
            known.threads.append(placement.thread_key)
        if trail.pid is not None:
            known.pids.add(trail.pid)
        known.has_turns |= trail.kind in THREAD_KINDS
        if trail.kind == "turn":
            known.last_turn = trail
            known.offers_tools |= trail.offers_tools
        if not known.has_turns and known.side is None:
            known.side = trail
        order = self.recent[known.client]
        order.pop(known.key, None)
        order[known.key] = None
        known.last_ns = max(known.last_ns, trail.started_ns)

    def _index(self, trail: Trail) -> None:
        if trail.state:
            same = self.states[trail.state]
            same.append(trail.id)
            del same[:-_SAME_STATE]
        for token in (*trail.reply_tokens, *trail.fresh_tokens):
            self._newest(self.tokens, token, trail)
        if trail.response_id:
            self._newest(self.responses, trail.response_id, trail)
        if trail.said and trail.reply_text and trail.kind in THREAD_KINDS:
            told = self.pairs[(trail.said, trail.reply_text)]
            told.append(trail.id)
            del told[:-_SAME_STATE]

    def _newest(self, index: dict[str, ExchangeId], name: str, trail: Trail) -> None:
        known = self.trails.get(index.get(name, trail.id))
        if known is None or _order(known) <= _order(trail):
            index[name] = trail.id

    def _put_in_order(self, trail: Trail) -> None:
        for same in (self.states.get(trail.state), self.pairs.get((trail.said, trail.reply_text))):
            if same is not None and len(same) > 1:
                same.sort(key=lambda number: _order(self.trails[number]))

    def _renumber(self, thread: Thread, kind: str) -> None:
        """An exchange was read after later ones of its thread: their numbers move."""
        number = 0
        for index, trail in enumerate(thread.trails):
            if trail.kind != kind:
                continue
            number += 1
            if trail.placement.number != number:
                moved = replace(trail, placement=replace(trail.placement, number=number))
                thread.trails[index] = self.trails[trail.id] = moved
                self.corrections[trail.id] = moved.placement

    def tell_kind(self, trail: Trail, kind: str) -> Trail:
        """What a call was for has become known after it was placed."""
        moved = replace(trail, placement=replace(trail.placement, kind=kind))
        thread = self.threads[trail.placement.thread_key]
        thread.trails[thread.trails.index(trail)] = self.trails[trail.id] = moved
        self.corrections[trail.id] = moved.placement
        return moved

    def sessions_of(self, client: str | None, pid: str | None) -> list[Known]:
        """The client's sessions, the one used last first; those of the same process before all others."""
        found = [self.sessions[key] for key in islice(reversed(self.recent[client]), _RECENT_SESSIONS)]
        if pid is not None:
            found.sort(key=lambda known: pid not in known.pids)
        return found


def _order(trail: Trail) -> tuple[int, ExchangeId]:
    return trail.started_ns, trail.id


def plain(text: str, characters: int = 400) -> str:
    """A text for comparing: white space taken as one, shortened."""
    return " ".join(text[: 2 * characters].split())[:characters]
