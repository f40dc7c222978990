"""What of a request body is not in its elements: the bytes around them and the bytes cut out of them, packed.

Pure. A skeleton with the body's elements (canonical bytes in prompt order) gives the body back. Elements that follow each other in
body and prompt with equal bytes between them are one run, so that a body of any length has a skeleton of constant size.
Layout, numbers as varints: count of runs, then for each run the bytes before it, its first element, count and separator; the bytes
behind the last run; count of cuts, then for each its element (step from the one before), offset in the canonical bytes, and bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage.packing import put_bytes, put_varint, sized_bytes, varint
from storage.records import Element


@dataclass(slots=True)
class _Run:
    before: bytes
    first: int
    count: int = 1
    separator: bytes = b""


def canonical(body: bytes, element: Element) -> bytes:
    """The element's bytes without its cuts."""
    if not element.cuts:
        return body[element.start : element.end]
    kept, at = [], element.start
    for start, end in element.cuts:
        kept.append(body[at:start])
        at = end
    kept.append(body[at : element.end])
    return b"".join(kept)


def pack(body: bytes, elements: Sequence[Element]) -> bytes:
    """The skeleton of a body. ValueError when spans overlap, leave the body or their element, or are not in order."""
    runs, tail = _runs(body, elements)
    out = bytearray()
    put_varint(out, len(runs))
    for run in runs:
        put_bytes(out, run.before)
        put_varint(out, run.first)
        put_varint(out, run.count)
        put_bytes(out, run.separator)
    put_bytes(out, tail)
    _pack_cuts(out, body, elements)
    return bytes(out)


def _runs(body: bytes, elements: Sequence[Element]) -> tuple[list[_Run], bytes]:
    """The runs in body order, and what stands behind the last element."""
    starts = [element.start for element in elements]
    runs: list[_Run] = []
    at = after = 0
    separator: bytes | None = None
    count = 0
    for index in sorted(range(len(elements)), key=starts.__getitem__):
        element = elements[index]
        start = element.start
        if start < at or element.end < start:
            raise ValueError("elements overlap")
        between = body[at:start]
        if index == after and count and (between == separator or count == 1):
            separator = between
            count += 1
        else:
            _close(runs, count, separator)
            runs.append(_Run(between, index))
            count, separator = 1, None
        at, after = element.end, index + 1
    _close(runs, count, separator)
    if at > len(body):
        raise ValueError("an element leaves the body")
    return runs, body[at:]


def _close(runs: list[_Run], count: int, separator: bytes | None) -> None:
    if runs:
        runs[-1].count, runs[-1].separator = count, separator or b""


def _pack_cuts(out: bytearray, body: bytes, elements: Sequence[Element]) -> None:
    cut = [(index, element) for index, element in enumerate(elements) if element.cuts]
    put_varint(out, sum(len(element.cuts) for _, element in cut))
    last = 0
    for index, element in cut:
        at, removed = element.start, 0
        for start, end in element.cuts:
            if not at <= start <= end <= element.end:
                raise ValueError("a cut leaves its element")
            put_varint(out, index - last)
            put_varint(out, start - element.start - removed)
            put_bytes(out, body[start:end])
            last, at, removed = index, end, removed + end - start


def rebuild(skeleton: bytes, elements: Sequence[bytes]) -> bytes:
    """The body again, from its skeleton and its elements' canonical bytes in prompt order; ValueError when they do not fit."""
    try:
        return _rebuild(skeleton, elements)
    except IndexError:
        raise ValueError("a skeleton does not fit its elements") from None


def frame(skeleton: bytes) -> bytes:
    """The body's JSON with `null` for elements, one for those of a list: what a reader needs that knows the elements; ValueError."""
    try:
        runs, tail, _ = _unpack(skeleton)
    except IndexError:
        raise ValueError("a skeleton is damaged") from None
    pieces: list[bytes] = []
    for run in runs:
        is_list = run.separator.strip() == b","  # what stands between others may be members of the body
        pieces += (run.before, b"null" if is_list else run.separator.join([b"null"] * run.count))
    return b"".join((*pieces, tail))


def _unpack(skeleton: bytes) -> tuple[list[_Run], bytes, int]:
    """The runs, what stands behind the last, and where the cuts begin."""
    count, at = varint(skeleton, 0)
    runs: list[_Run] = []
    for _ in range(count):
        before, at = sized_bytes(skeleton, at)
        first, at = varint(skeleton, at)
        length, at = varint(skeleton, at)
        separator, at = sized_bytes(skeleton, at)
        runs.append(_Run(before, first, length, separator))
    tail, at = sized_bytes(skeleton, at)
    return runs, tail, at


def _rebuild(skeleton: bytes, elements: Sequence[bytes]) -> bytes:
    runs, tail, at = _unpack(skeleton)
    elements = _with_cuts(skeleton, at, elements)
    if sum(run.count for run in runs) != len(elements):
        raise ValueError("a skeleton does not fit its elements")
    pieces: list[bytes] = []
    for run in runs:
        pieces.append(run.before)
        pieces.append(run.separator.join(elements[run.first : run.first + run.count]))
    pieces.append(tail)
    return b"".join(pieces)


def _with_cuts(skeleton: bytes, at: int, elements: Sequence[bytes]) -> Sequence[bytes]:
    """The elements with their cuts put back."""
    count, at = varint(skeleton, at)
    if not count:
        return elements
    places: dict[int, list[tuple[int, bytes]]] = {}
    index = 0
    for _ in range(count):
        step, at = varint(skeleton, at)
        offset, at = varint(skeleton, at)
        content, at = sized_bytes(skeleton, at)
        index += step
        places.setdefault(index, []).append((offset, content))
    whole = list(elements)
    for index, cuts in places.items():
        whole[index] = _put_back(whole[index], cuts)
    return whole


def _put_back(element: bytes, cuts: Sequence[tuple[int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for offset, content in cuts:
        pieces += (element[at:offset], content)
        at = offset
    pieces.append(element[at:])
    return b"".join(pieces)
