"""The prompts of recorded or replayed exchanges, asked of the store: each a path of named elements, tokens counted once an element.

A request that names the answer it goes on from is made whole (`replay.reuse.lineage`). It does not know what is reused, nor any rule.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import batched

from replay.reuse import lineage
from replay.reuse.ideal import Prompt
from replay.reuse.lineage import Key, Path
from replay.reuse.prefix_tree import Ids
from storage import elements, exchanges
from storage import lineage as lineages
from storage.records import ExchangeId, ExchangeRow, State, Transport
from storage.trace import Trace
from tracer import tokens, wire

_BATCH = 2000
_REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Counted:
    """One exchange with its prompt; None when its body could not be taken apart."""

    row: ExchangeRow
    prompt: Prompt | None


def fills_a_cache(row: ExchangeRow) -> bool:
    """Whether a server took this as a prompt: a model call that was answered, token counts apart."""
    answered = row.status is not None and 200 <= row.status < 300
    is_asked = row.method == "POST" or row.transport == Transport.WS
    return row.dialect is not None and row.kind != "count_tokens" and is_asked and answered


class Prompts:
    """Paths and token ids of a trace's requests. Each distinct element is fetched and counted once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._groups: dict[int, str] = {}
        self._ids: dict[int, Ids] = {}
        self._depths: dict[int, int] = {}
        self._keys: dict[int, Key] = {}
        self._by_element: dict[Key, Ids] = {}
        self._heads: set[Key] = set()
        self._names = lineage.Names()
        self._links: dict[ExchangeId, ExchangeId | None] = {}
        self._wholes: dict[ExchangeId, Path | None] = {}
        """Of those that others go on from."""

    def ids_of(self, name: int) -> Ids:
        """Token ids of the last element of the path with this name."""
        return self._ids[name]

    def group_of(self, name: int) -> str:
        """What that element is: tool, system, message or item."""
        return self._groups[name]

    def counted(self, rows: Sequence[ExchangeRow], *, salted: bool = False) -> list[Counted]:
        """The rows with their prompts, in order of start. `salted`: each copy of each session has a cache of its own."""
        ordered = sorted(rows, key=lambda row: (row.started_ns, row.id))
        space = _salted_space if salted else _space
        self._links = _links(self._trace, rows)
        self._wholes = {before: None for before in self._links.values() if before is not None}
        return [one for some in batched(ordered, _BATCH) for one in self._batch(some, space)]

    def _batch(self, rows: Sequence[ExchangeRow], space: Callable[[ExchangeRow], str]) -> Iterator[Counted]:
        nodes = dict(elements.paths(self._trace, [row.id for row in rows]))
        paths = {row.id: _named(nodes[row.id], _dialect_number(row)) for row in rows}
        self._fetch({name for path in paths.values() for name in path if name not in self._ids})
        for number, ids in _replies(self._trace, [row.id for row in rows if row.id in self._wholes]):
            self._by_element[_reply_key(number)] = ids
        for row in rows:
            path = self._whole(row.id, paths[row.id])
            yield Counted(row, self._prompt(row, path, space(row)) if path else None)

    def _fetch(self, names: set[int]) -> None:
        """Groups and ids of names not met before."""
        found = elements.node_elements(self._trace, {name // len(wire.DIALECTS) for name in names})
        keys = {name: (name % len(wire.DIALECTS), *found[name // len(wire.DIALECTS)]) for name in names}
        wanted = {key for key in keys.values() if key not in self._by_element}
        for some in batched(wanted, _BATCH):
            contents = elements.element_bytes(self._trace, {element for _, _, element in some})
            for key in some:
                dialect, content = wire.DIALECTS[key[0]], contents[key[2]]
                self._by_element[key] = tokens.element_ids(dialect, key[1], content)
                if wire.is_head(dialect, key[1], content):
                    self._heads.add(key)
        for name, key in keys.items():
            self._know(name, key, key[1])

    def _know(self, name: int, key: Key, group: str) -> None:
        self._keys[name], self._groups[name], self._ids[name] = key, group, self._by_element[key]

    def _whole(self, number: ExchangeId, own: Path) -> Path | None:
        """The path of all that the model was to go on from; None where the answer that the request names is not known here."""
        path: Path | None = own
        if number in self._links:
            path = self._behind(self._links[number], own)
        if number in self._wholes:
            self._wholes[number] = path
        return path

    def _behind(self, number: ExchangeId | None, own: Path) -> Path | None:
        before = self._wholes[number] if number is not None else None
        if number is None or before is None:
            return None
        reply = _reply_key(number) if _reply_key(number) in self._by_element else None
        path = lineage.whole(self._names, self._keys.__getitem__, lambda name: self._keys[name] in self._heads, (before, reply, own))
        for name in path:
            if name not in self._ids:
                key = self._names.made[name]
                self._know(name, key, "message" if key[0] == _REPLY else str(key[1]))
        return path

    def _prompt(self, row: ExchangeRow, path: Path, space: str) -> Prompt:
        estimate = self._depth(path)
        return Prompt(
            exchange=row.id,
            space=space,
            start_ns=row.started_ns,
            ready_ns=_ready_ns(row),
            end_ns=row.started_ns + (row.ended_ns or 0),
            path=path,
            estimate=estimate,
            tokens=estimate if row.usage.prompt is None else row.usage.prompt,
        )

    def _depth(self, path: Sequence[int]) -> int:
        """Tokens of the whole path; only what is new in it is added up."""
        known = len(path)
        while known and path[known - 1] not in self._depths:
            known -= 1
        depth = self._depths[path[known - 1]] if known else 0
        for name in path[known:]:
            depth += len(self._ids[name])
            self._depths[name] = depth
        return depth


def _space(row: ExchangeRow) -> str:
    return row.model or ""


def _salted_space(row: ExchangeRow) -> str:
    return f"{row.model or ''}\0{row.session}\0{row.copy}"


def _dialect_number(row: ExchangeRow) -> int:
    return next((number for number, dialect in enumerate(wire.DIALECTS) if row.dialect == dialect.NAME), 0)


def _links(trace: Trace, rows: Iterable[ExchangeRow]) -> dict[ExchangeId, ExchangeId | None]:
    """Of each row that names an answer, the row that was given it; in a replay, the row that repeats that one."""
    known = lineages.links(trace)
    if not known:
        return {}
    here = {(row.source_exchange or row.id, row.copy): row.id for row in rows}
    named = [(row, known[row.id]) for row in rows if row.id in known]
    return {row.id: None if before is None else here.get((before, row.copy)) for row, before in named}


def _reply_key(number: ExchangeId) -> Key:
    return (_REPLY, number)


def _named(nodes: Iterable[int], dialect: int) -> Path:
    """Equal bytes can read otherwise in another dialect: a name is a node of the store as one dialect reads it."""
    return tuple(node * len(wire.DIALECTS) + dialect for node in nodes)


def _ready_ns(row: ExchangeRow) -> int | None:
    """When the prefill had ended: at the first content, else at the end of a whole answer; None where neither came."""
    if row.marks.first_content_ns is not None:
        return row.started_ns + row.marks.first_content_ns
    return row.started_ns + row.ended_ns if row.state == State.COMPLETE and row.ended_ns is not None else None


def with_replies(trace: Trace, counted: Sequence[Counted]) -> list[Counted]:
    """The same with what each exchange generated, read from its answer."""
    found = dict(_replies(trace, [one.row.id for one in counted if one.prompt is not None and one.prompt.ready_ns is not None]))
    return [one if one.prompt is None else Counted(one.row, replace(one.prompt, reply=found.get(one.row.id))) for one in counted]


def _replies(trace: Trace, wanted: Sequence[ExchangeId]) -> Iterator[tuple[ExchangeId, Ids]]:
    """What each of these generated, as a later prompt carries it; those that generated nothing, or cannot be read, are left out."""
    for exchange in exchanges.load_many(trace, wanted) if wanted else ():
        read = wire.read(exchange)
        ids = tokens.reply_ids(read[1], read[0].NAME) if read is not None else None
        if exchange.id is not None and ids:
            yield exchange.id, ids
