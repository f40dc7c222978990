"""A body taken apart in any way comes back to the byte from its skeleton and its elements."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.records import Element
from storage.skeleton import canonical, frame, pack, rebuild


@st.composite
def taken_apart(draw: st.DrawFn) -> tuple[bytes, tuple[Element, ...]]:
    """A body, disjoint spans in it in any prompt order, and cuts inside them."""
    body = draw(st.binary(max_size=200))
    edges = sorted(draw(st.lists(st.integers(0, len(body)), max_size=24)))
    found = []
    for start, end in sorted({(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False) if start < end}):
        marks = sorted(draw(st.lists(st.integers(start, end), max_size=6)))
        cuts = tuple(zip(marks[::2], marks[1::2], strict=False))
        found.append(Element(draw(st.sampled_from(["tool", "system", "message"])), start, end, cuts))
    return body, tuple(draw(st.permutations(found)))


@given(taken_apart())
def test_any_split_comes_back(case: tuple[bytes, tuple[Element, ...]]) -> None:
    """Whatever the spans, their order and their cuts."""
    body, elements = case
    assert rebuild(pack(body, elements), [canonical(body, each) for each in elements]) == body


def spans_of(body: bytes, first: int, last: int) -> list[Element]:
    """One element for each `message N`, with its marker cut."""
    found, at = [], 0
    for index in range(first, last):
        start = body.index(b'{"role":"user","content":[{"type":"text","text":"message %d"' % index, at)
        at = body.index(b"]}", start) + 2
        marker = body.find(b',"cache_control":{"type":"ephemeral"}', start, at)
        cuts = ((marker, marker + 37),) if marker >= 0 else ()
        found.append(Element("message", start, at, cuts))
    return found


def test_a_skeleton_has_constant_size(make_body: Callable[..., bytes]) -> None:
    """Messages in a row cost nothing in it, however many; order in the body may differ from the order in the prompt."""
    sizes = []
    for count in (3, 1200):
        body = make_body(count)
        tools = body.index(b'{"name":"tool0"')
        elements = [Element("tool", tools, body.index(b"}}", tools) + 2), *spans_of(body, 0, count)]
        skeleton = pack(body, elements)
        assert rebuild(skeleton, [canonical(body, each) for each in elements]) == body
        sizes.append(len(skeleton))
    assert sizes[1] - sizes[0] <= 6
    assert sizes[1] < 260


@pytest.mark.parametrize(
    "elements",
    [
        (Element("m", 0, 5), Element("m", 4, 8)),
        (Element("m", 0, 11),),
        (Element("m", 5, 3),),
        (Element("m", 2, 8, ((1, 3),)),),
        (Element("m", 2, 8, ((6, 9),)),),
        (Element("m", 2, 8, ((5, 6), (3, 4))),),
    ],
)
def test_spans_that_cannot_be_are_refused(elements: tuple[Element, ...]) -> None:
    """Overlaps, spans beyond the body, cuts outside their element."""
    with pytest.raises(ValueError, match=r"overlap|leaves"):
        pack(b"0123456789", elements)


def test_a_skeleton_refuses_other_elements() -> None:
    """Too few, too many, or bytes that are no skeleton."""
    body = b"<a,b>"
    skeleton = pack(body, (Element("m", 1, 2), Element("m", 3, 4)))
    assert rebuild(skeleton, [b"a", b"b"]) == body
    for elements in ([b"a"], [b"a", b"b", b"c"]):
        with pytest.raises(ValueError, match="does not fit"):
            rebuild(skeleton, elements)
    for damaged in (b"", skeleton[:4]):
        with pytest.raises(ValueError, match=r"does not fit|too early"):
            rebuild(damaged, [b"a", b"b"])


def test_a_frame_is_json_without_the_elements() -> None:
    """Lists shrink to one `null`; what stands between elements that are no list stays; cuts are not put back."""
    body = b'{"instructions":"Be brief","input":[{"a":1},{"b":2},{"c":3}],"model":"m"}'
    spans = [(body.index(text), body.index(text) + len(text)) for text in (b'"Be brief"', b'{"a":1}', b'{"b":2}', b'{"c":3}')]
    elements = [Element("system" if place == 0 else "item", *span) for place, span in enumerate(spans)]
    elements[1] = Element("item", *spans[1], ((spans[1][0] + 1, spans[1][1] - 1),))
    assert json.loads(frame(pack(body, elements))) == {"instructions": None, "input": [None, None], "model": "m"}
    with pytest.raises(ValueError, match="damaged"):
        frame(b"\x05")
