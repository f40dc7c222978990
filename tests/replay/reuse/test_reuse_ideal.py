"""Ideal reuse equals the longest common prefix with every earlier prompt, taken token by token."""

from array import array
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.reuse import ideal
from replay.reuse.ideal import Prompt
from replay.reuse.prefix_tree import Ids, PrefixTree, shared_by


class Book:
    """Names for paths, as the store gives them: a name stands for an element after its predecessors."""

    def __init__(self) -> None:
        self._names: dict[tuple[int | None, tuple[int, ...]], int] = {}
        self._ids: dict[int, Ids] = {}

    def path(self, elements: Sequence[Sequence[int]]) -> tuple[int, ...]:
        names: list[int] = []
        for element in elements:
            key = (names[-1] if names else None, tuple(element))
            name = self._names.setdefault(key, len(self._names))
            self._ids[name] = array("I", element)
            names.append(name)
        return tuple(names)

    def ids_of(self, name: int) -> Ids:
        return self._ids[name]


def prompt(book: Book, elements: Sequence[Sequence[int]], number: int, **more: object) -> Prompt:
    count = sum(map(len, elements))
    made = Prompt(
        exchange=number,
        space="m",
        start_ns=number * 10,
        ready_ns=number * 10 + 1,
        end_ns=number * 10 + 2,
        path=book.path(elements),
        estimate=count,
        tokens=count,
    )
    return replace(made, **more)  # type: ignore[arg-type]


def common(a: Sequence[int], b: Sequence[int]) -> int:
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


ELEMENT = st.lists(st.integers(0, 2), max_size=4)
REQUEST = st.tuples(
    st.lists(ELEMENT, max_size=5),
    st.integers(0, 12),  # start
    st.one_of(st.none(), st.integers(0, 6)),  # prefill took
    st.integers(0, 6),  # decode took
    st.lists(st.integers(0, 2), max_size=5),  # generated
    st.sampled_from(["m1", "m2"]),
)


@given(st.lists(REQUEST, max_size=12))
@settings(max_examples=400, deadline=None)
def test_equals_brute_force(given_requests: list[tuple[list[list[int]], int, int | None, int, list[int], str]]) -> None:
    """Elements of any cut, starts of any order, prefills that have not ended, two models: the tree says what comparing all pairs says."""
    book = Book()
    prompts, flat = [], []
    for number, (elements, start, prefill, decode, reply, model) in enumerate(sorted(given_requests, key=lambda r: r[1])):
        ready = None if prefill is None else start + prefill
        end = start + (prefill or 0) + decode
        prompts.append(prompt(book, elements, number, space=model, start_ns=start, ready_ns=ready, end_ns=end, reply=array("I", reply)))
        flat.append([token for element in elements for token in element])
    for generated in (False, True):
        expected = []
        for n, later in enumerate(prompts):
            best = 0
            for m, earlier in enumerate(prompts[:n]):
                if earlier.space != later.space or earlier.ready_ns is None or earlier.ready_ns > later.start_ns:
                    continue
                best = max(best, common(flat[m], flat[n]))
                if generated and earlier.end_ns <= later.start_ns and earlier.reply:
                    best = max(best, common(flat[m] + list(earlier.reply)[:-1], flat[n]))
            expected.append(best)
        assert list(ideal.leading(prompts, book.ids_of, generated=generated)) == expected


@given(st.lists(ELEMENT, max_size=6), st.lists(ELEMENT, max_size=6))
def test_two_paths(a: list[list[int]], b: list[list[int]]) -> None:
    """What two prompts share does not depend on how they are cut into elements."""
    book = Book()
    assert shared_by(book.path(a), book.path(b), book.ids_of) == common([t for e in a for t in e], [t for e in b for t in e])


def test_a_prefill_that_runs_on_is_not_there() -> None:
    """Of two equal requests at once the second finds nothing; once the first prefill has ended a third finds all."""
    book = Book()
    same = [[1, 2, 3], [4]]
    prompts = [
        prompt(book, same, 0, start_ns=0, ready_ns=50, end_ns=90),
        prompt(book, same, 1, start_ns=49, ready_ns=99, end_ns=120),
        prompt(book, same, 2, start_ns=50, ready_ns=99, end_ns=120),
    ]
    assert list(ideal.ideal(prompts, book.ids_of)) == [0, 0, 4]


def test_generated_tokens_count_in_the_second_variant_only() -> None:
    """What was generated is reusable by the turn that carries it back, except its last token."""
    book = Book()
    first = prompt(book, [[1, 2]], 0, reply=array("I", [7, 8, 9]))
    second = prompt(book, [[1, 2], [7, 8, 9], [5]], 1)
    assert list(ideal.ideal([first, second], book.ids_of)) == [0, 2]
    assert list(ideal.ideal_with_generated([first, second], book.ids_of)) == [0, 4]


def test_scaling_keeps_shares_and_never_passes_the_prompt() -> None:
    """A server that counts twice as many tokens has twice as many reusable ones."""
    book = Book()
    one = prompt(book, [[1, 2, 3, 4], [5]], 0, estimate=5, tokens=10)
    assert ideal.scaled(4, one) == 8
    assert ideal.scaled(5, one) == 10
    assert ideal.scaled(5, replace(one, tokens=3)) == 3
    assert ideal.scaled(0, replace(one, estimate=0, tokens=3)) == 0


def test_a_long_session_compares_what_is_new() -> None:
    """600 growing turns of up to 1,200 elements: each element's tokens are asked for about twice, not 600 times."""
    asked: list[int] = []

    def ids_of(name: int) -> Ids:
        asked.append(name)
        return array("I", [name] * 50)

    tree = PrefixTree(ids_of)
    for turn in range(600):
        path = range(2 * turn + 2)
        assert tree.shared(path) == 50 * 2 * turn
        tree.put(path)
    assert len(asked) < 4 * 1200


def test_a_prefill_under_way_may_be_reused_though_it_is_not_ideal() -> None:
    """What the client has not heard of yet is not ideal, but no server is wrong to have it."""
    book = Book()
    first = prompt(book, [[1, 2], [3]], 1, ready_ns=100, end_ns=200)
    second = prompt(book, [[1, 2], [4]], 2)
    assert list(ideal.ideal([first, second], book.ids_of)) == [0, 0]
    assert list(ideal.possible([first, second], book.ids_of)) == [0, 2]
    assert list(ideal.possible([first, replace(second, space="other")], book.ids_of)) == [0, 0]
