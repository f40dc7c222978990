"""How much of a split body is the same as an earlier one, found by comparing bytes: far quicker than hashing every element again.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.records import Element, Split
from storage.skeleton import canonical

_STEP_BYTES = 128 << 10
"""Compared at a time: both pieces stay in the processor's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Remembered:
    """A body that was stored, with the node of each of its elements."""

    split: Split
    nodes: Sequence[int]


def closest(remembered: Sequence[Remembered], split: Split) -> tuple[Remembered, int] | None:
    """The remembered body that shares the longest prefix of elements, and how many; None when no element is shared."""
    best: tuple[Remembered, int] | None = None
    for candidate in remembered:
        likely = _likely_prefix(candidate.split, split)
        if likely and (best is None or likely > best[1]):
            best = candidate, likely
        if likely == len(candidate.split.elements):
            break
    if best is None:
        return None
    count = shared_prefix(best[0].split, split)
    return (best[0], count) if count else None


def _likely_prefix(old: Split, new: Split) -> int:
    """By halving: right when everything before an equal element is equal, else a guess."""
    low, high = 0, min(len(old.elements), len(new.elements))
    while low < high:
        middle = (low + high) // 2
        if _same(old, new, middle):
            low = middle + 1
        else:
            high = middle
    return low


def _same(old: Split, new: Split, index: int) -> bool:
    a, b = old.elements[index], new.elements[index]
    return a.group == b.group and canonical(old.body, a) == canonical(new.body, b)


def shared_prefix(old: Split, new: Split) -> int:
    """How many leading elements have the same group and canonical bytes. Exact."""
    count = min(len(old.elements), len(new.elements))
    at = 0
    while at < count:
        end = _shifted_run(old.elements, new.elements, at, count)
        if end == at:
            if not _same(old, new, at):
                return at
            at += 1
            continue
        a, b = old.elements[at], new.elements[at]
        length = new.elements[end - 1].end - b.start
        same = _same_bytes(old.body, a.start, new.body, b.start, length)
        if same == length:
            at = end
            continue
        at = next(index for index in range(at, end) if new.elements[index].end - b.start > same)
        if new.elements[at].start - b.start <= same:
            return at
    return count


def _shifted_run(old: Sequence[Element], new: Sequence[Element], at: int, count: int) -> int:
    """The end of the run of whole elements from `at` that stand in both bodies in a row at one distance from each other."""
    shift, place = new[at].start - old[at].start, new[at].start
    while at < count:
        a, b = old[at], new[at]
        if b.start < place or b.start - a.start != shift or b.end - a.end != shift or a.cuts or b.cuts or a.group != b.group:
            break
        place = b.end
        at += 1
    return at


def _same_bytes(old: bytes, a: int, new: bytes, b: int, length: int) -> int:
    """How many bytes from `a` and `b` on are equal, up to `length`."""
    for done in range(0, length, _STEP_BYTES):
        step = min(_STEP_BYTES, length - done)
        if not new.startswith(old[a + done : a + done + step], b + done):
            return done + _equal_in(old[a + done : a + done + step], new[b + done : b + done + step])
    return length


def _equal_in(old: bytes, new: bytes) -> int:
    low, high = 0, len(old)
    while low < high:
        middle = (low + high + 1) // 2
        if old[:middle] == new[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
