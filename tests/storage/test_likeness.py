"""The shared prefix found by comparing bytes is the one that comparing every element finds."""

from hypothesis import given
from hypothesis import strategies as st

from storage.likeness import Remembered, closest, shared_prefix
from storage.records import Element, Split
from storage.skeleton import canonical

PIECES = st.lists(st.tuples(st.sampled_from("tm"), st.sampled_from([b"a", b"bb", b"ccc", b"", b"a\x00"]), st.booleans()), max_size=8)


def split_of(pieces: list[tuple[str, bytes, bool]], separator: bytes, *, reverse: bool) -> Split:
    """A body of these elements, in prompt order or against it; where told, with a decoration to cut."""
    body = bytearray(b"[")
    spans = []
    for group, content, has_cut in reversed(pieces) if reverse else pieces:
        start = len(body)
        body += content + (b"#" if has_cut else b"")
        spans.append(Element(group, start, len(body), ((len(body) - 1, len(body)),) if has_cut else ()))
        body += separator
    return Split(bytes(body), tuple(reversed(spans) if reverse else spans))


def slowly(old: Split, new: Split) -> int:
    """One element after the other."""
    count = 0
    for a, b in zip(old.elements, new.elements, strict=False):
        if (a.group, canonical(old.body, a)) != (b.group, canonical(new.body, b)):
            break
        count += 1
    return count


@given(PIECES, PIECES, st.sampled_from([b"", b",", b", "]), st.sampled_from([b",", b"; "]), st.booleans(), st.booleans())
def test_shared_prefix_is_exact(
    old: list[tuple[str, bytes, bool]], new: list[tuple[str, bytes, bool]], one: bytes, other: bytes, first: bool, second: bool
) -> None:
    """Whatever stands between the elements, and in whichever order they stand."""
    a, b = split_of(old + new, one, reverse=first), split_of(old + old, other, reverse=second)
    assert shared_prefix(a, b) == slowly(a, b)
    assert shared_prefix(a, a) == len(a.elements)


def test_a_long_run_that_differs_late_is_found() -> None:
    """Beyond the stretch that is compared at a time."""
    pieces = [("m", b"%08d" % index * 50, False) for index in range(2000)]
    changed = [*pieces[:1777], ("m", b"x" * 400, False), *pieces[1778:]]
    assert shared_prefix(split_of(pieces, b",", reverse=False), split_of(changed, b",", reverse=False)) == 1777


def test_the_body_that_shares_most_is_chosen() -> None:
    """Threads at work at once keep their own predecessors."""
    pieces = [("m", b"%d" % index, False) for index in range(40)]
    one, other = split_of(pieces[:20], b",", reverse=False), split_of([*pieces[:5], ("m", b"else", False)], b",", reverse=False)
    remembered = [Remembered(other, range(6)), Remembered(one, range(20))]
    assert closest(remembered, split_of(pieces, b",", reverse=False)) == (remembered[1], 20)
    assert closest(remembered, split_of([("m", b"new", False)], b",", reverse=False)) is None
    assert closest([], one) is None
