"""Builds the elements of a split body, and finds in them what does not belong to their identity.

A cut takes the comma with it, so that an element reads the same with and without the member, wherever it stood. Knows JSON and
element groups; which members are volatile is told by the dialect.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from storage.records import Element
from tracer.wire.json_spans import Member, Span, items, kind, members

type Volatile = Callable[[bytes, Member, int], bool]
"""(body, member, depth of the object it stands in, the element's own being 0) -> whether it is cut."""

type FindCuts = Callable[[bytes, Span, Sequence[int]], tuple[Span, ...]]
"""(body, span of an element, where marker bytes stand in it) -> its cuts."""

_DEEPEST = 12

_FREE_FORM = frozenset(
    ("input", "input_schema", "parameters", "parametersJsonSchema", "arguments", "args", "schema", "properties", "response"),
)
"""Members whose inside is the user's own: a key that looks like a marker there is content."""


def occurrences(body: bytes, marker: bytes) -> list[int]:
    """Where the marker's bytes stand, ascending."""
    found: list[int] = []
    at = body.find(marker)
    while at >= 0:
        found.append(at)
        at = body.find(marker, at + len(marker))
    return found


def elements(body: bytes, group: str, spans: Sequence[Span], marks: Sequence[int], find_cuts: FindCuts) -> list[Element]:
    """One element a span; only those that hold a mark are searched for cuts."""
    built = [Element(group, start, end) for start, end in spans]
    if not marks:
        return built
    for index, inside in _marked(spans, marks).items():
        start, end = spans[index]
        built[index] = Element(group, start, end, find_cuts(body, (start, end), inside))
    return built


def _marked(spans: Sequence[Span], marks: Sequence[int]) -> dict[int, list[int]]:
    """Index of each span that holds marks -> those marks."""
    starts = [start for start, _ in spans]
    found: dict[int, list[int]] = {}
    for mark in marks:
        index = bisect_left(starts, mark + 1) - 1
        if index >= 0 and mark < spans[index][1]:
            found.setdefault(index, []).append(mark)
    return found


def cuts(body: bytes, span: Span, volatile: Volatile) -> tuple[Span, ...]:
    """The spans to leave out of one element, ascending and disjoint."""
    found: list[Span] = []
    _search(body, span, volatile, (0, found))
    return tuple(sorted(found))


def _search(body: bytes, span: Span, volatile: Volatile, state: tuple[int, list[Span]]) -> None:
    depth, found = state
    opening = kind(body, span)
    if opening == b"[" and depth < _DEEPEST:
        for inner in items(body, span) or ():
            _search(body, inner, volatile, (depth + 1, found))
    elif opening == b"{" and depth < _DEEPEST:
        inside = members(body, span) or ()
        doomed = [volatile(body, each, depth) for each in inside]
        found.extend(_runs(inside, doomed, span))
        for each, gone in zip(inside, doomed, strict=True):
            if not gone and each.key not in _FREE_FORM:
                _search(body, (each.value, each.end), volatile, (depth + 1, found))


def _runs(inside: Sequence[Member], doomed: Sequence[bool], span: Span) -> list[Span]:
    """Cuts for the doomed members of one object, neighbours in one cut, each with the comma that goes with it."""
    kept = [index for index, gone in enumerate(doomed) if not gone]
    if len(kept) == len(inside):
        return []
    if not kept:
        return [(span[0] + 1, span[1] - 1)]
    edges = [-1, *kept, len(inside)]
    found: list[Span] = []
    for before, after in pairwise(edges):
        if after - before < 2:
            continue
        if before < 0:
            found.append((inside[0].start, inside[after].start))
        else:
            found.append((inside[before].end, inside[after - 1].end))
    return found


def kept(body: bytes, element: Element) -> bytes:
    """An element's canonical bytes: without its cuts."""
    edges = [element.start, *(edge for cut in element.cuts for edge in cut), element.end]
    return b"".join(body[edges[at] : edges[at + 1]] for at in range(0, len(edges), 2))


def with_cuts(element: Element, more: Sequence[Span]) -> Element:
    """The element with further cuts, given as spans in its canonical bytes."""
    edges = [element.start, *(edge for cut in element.cuts for edge in cut), element.end]
    found = list(element.cuts)
    offset = 0
    for at in range(0, len(edges), 2):
        start, end = edges[at], edges[at + 1]
        for first, last in more:
            low, high = max(start, start + first - offset), min(end, start + last - offset)
            if low < high:
                found.append((low, high))
        offset += end - start
    return Element(element.group, element.start, element.end, _merged(found))


def _merged(spans: list[Span]) -> tuple[Span, ...]:
    """Ascending and disjoint, spans that touch made one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)
