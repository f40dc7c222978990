"""The prompt of each request as identity sees it, made from the prefix tree so that every element is parsed once.

Two requests that share a node share their prompt up to there, so what is known of a node is known of all that goes on from it. Memory
is bounded. Knows the store and the canonical view, not what follows from either.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from storage import elements
from storage.records import Exchange, ExchangeId, Medium, Split
from storage.skeleton import canonical
from storage.trace import Trace
from tracer import media, wire
from tracer.identity.canonical import View, view
from tracer.wire import json_values

_MOST_NODES = 1 << 17
_MOST_VIEWS = 1 << 15


@dataclass(frozen=True, slots=True)
class Step:
    """One element in its place. `preamble`: digest of the tools-free instructions before the talk; `state`: of the talk so far."""

    view: View
    in_talk: bool
    preamble: bytes
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request's elements in prompt order; `key` names them: equal for equal prompts."""

    steps: tuple[Step, ...] = ()
    key: bytes = b""

    @property
    def views(self) -> tuple[View, ...]:
        """The elements."""
        return tuple(step.view for step in self.steps)

    @property
    def talk(self) -> tuple[View, ...]:
        """The conversation: without tools and leading instructions."""
        return tuple(step.view for step in self.steps if step.in_talk)

    @property
    def chain(self) -> tuple[bytes, ...]:
        """The state after each element of the talk."""
        return tuple(step.state for step in self.steps if step.in_talk)

    @property
    def preamble(self) -> bytes:
        """Digest of the leading instructions."""
        return self.steps[-1].preamble if self.steps else b""


def step(before: Step | None, seen: View) -> Step:
    """The next element behind `before`. Tools count for nothing: agents add some as they go."""
    preamble, state = (before.preamble, before.state) if before else (b"", b"")
    talking = before is not None and before.in_talk
    if seen.role == "tool_definition":
        return Step(seen, talking, preamble, state)
    if seen.role == "system" and not talking:
        return Step(seen, False, _joined(preamble, seen.digest), state)
    return Step(seen, True, preamble, _joined(state, seen.digest))


def _joined(before: bytes, digest: bytes) -> bytes:
    return hashlib.blake2b(before + digest, digest_size=16).digest()


class Prompts:
    """Finds prompts in one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._steps: dict[int, Step] = {}
        self._views: dict[tuple[str, int], View] = {}
        self._media: dict[int, tuple[Medium, ...]] = {}

    def of(self, ids: Sequence[ExchangeId], loaded: Iterable[Exchange]) -> Iterator[tuple[Exchange, Prompt]]:
        """Each exchange with its prompt, in the order given. What a batch brings is fetched at once."""
        paths = dict(elements.paths(self._trace, ids))
        self._learn(paths)
        for number, exchange in zip(ids, loaded, strict=True):
            path = paths.get(number, ())
            yield exchange, self._known(path) if path else prompt_of(exchange)

    def _known(self, path: Sequence[int]) -> Prompt:
        return Prompt(steps=tuple(self._steps[node] for node in path), key=path[-1].to_bytes(8, "big"))

    def _learn(self, paths: dict[ExchangeId, tuple[int, ...]]) -> None:
        """What is not yet known of the nodes on these paths."""
        if len(self._steps) > _MOST_NODES:
            self._steps.clear()
        if len(self._views) > _MOST_VIEWS:
            self._views.clear()
        unknown = dict.fromkeys(node for path in paths.values() for node in self._unknown(path))
        placed = elements.node_elements(self._trace, unknown)
        wanted = {number for group, number in placed.values() if (group, number) not in self._views}
        contents = elements.element_bytes(self._trace, sorted(wanted))
        for group, number in placed.values():
            if (group, number) not in self._views:
                content = contents.get(number, b"")
                self._views[group, number] = view(group, content)
                self._look_for_media(number, content)
        for path in paths.values():
            before: Step | None = None
            new = self._unknown(path)
            if len(new) < len(path):
                before = self._steps[path[len(path) - len(new) - 1]]
            for node in new:
                before = self._steps[node] = step(before, self._views[placed[node]])

    def _look_for_media(self, element: int, content: bytes) -> None:
        if any(mark in content for mark in media.MARKS) and (found := tuple(media.found(json_values.value(content)))):
            self._media[element] = found

    def new_media(self) -> dict[int, tuple[Medium, ...]]:
        """What elements that were met since the last time hold, by element id."""
        found, self._media = self._media, {}
        return found

    def _unknown(self, path: tuple[int, ...]) -> tuple[int, ...]:
        """The end of the path that is not known: a node is only known with all before it."""
        at = len(path)
        while at and path[at - 1] not in self._steps:
            at -= 1
        return path[at:]


def prompt_of(exchange: Exchange) -> Prompt:
    """The prompt of a body that the tree does not hold: taken apart here where its dialect can."""
    split = wire.split(exchange.request) or Split(b"", ())
    steps: list[Step] = []
    for element in split.elements:
        seen = view(element.group, canonical(split.body, element))
        steps.append(step(steps[-1] if steps else None, seen))
    return Prompt(steps=tuple(steps), key=hashlib.blake2b(exchange.request.body, digest_size=16).digest())
