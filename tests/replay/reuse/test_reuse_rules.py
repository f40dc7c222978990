"""Rules of engines: against every block written down, and against sequences seen on real servers."""

from array import array
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.reuse.blocks import Limits
from replay.reuse.ideal import Prompt
from replay.reuse.prefix_tree import Ids
from replay.reuse.rules import llama_cpp, vllm


def ids_of_all(prompts: Sequence[tuple[Prompt, Ids]]) -> dict[int, Ids]:
    return {prompt.path[0]: ids for prompt, ids in prompts}


def whole(number: int, ids: Sequence[int], *, start: int, ready: int | None, end: int, reply: Sequence[int] = ()) -> tuple[Prompt, Ids]:
    """A prompt of one element."""
    made = Prompt(
        exchange=number,
        space="m",
        start_ns=start,
        ready_ns=ready,
        end_ns=end,
        path=(number,),
        estimate=len(ids),
        tokens=len(ids),
        reply=array("I", reply),
    )
    return made, array("I", ids)


def predicted(prompts: Sequence[tuple[Prompt, Ids]], limits: Limits) -> list[int]:
    return list(vllm.predict([prompt for prompt, _ in prompts], ids_of_all(prompts).__getitem__, limits))


def written_down(prompts: Sequence[tuple[Prompt, Ids]], limits: Limits) -> list[int]:
    """No tree and no queue: a block is (all tokens up to its end); each holds when it is ready and each start that used it."""
    size, expected = limits.block_tokens, []
    made: list[tuple[tuple[int, ...], int, int]] = []  # (tokens up to the block's end, ready, used)
    for prompt, ids in prompts:
        now, tokens = prompt.start_ns, tuple(ids)
        hit = 0
        for end in range(size, len(tokens) + 1, size):
            fitting = [(ready, used) for block, ready, used in made if block == tokens[:end] and ready <= now]
            if not fitting:
                break
            if limits.ttl_ns is not None and now - max(used for _, used in fitting) > limits.ttl_ns:
                break
            hit = end
        made += [(tokens[:end], now, now) for end in range(size, hit + 1, size)]  # used again
        expected.append(max(0, min(hit, len(tokens) - 1)) // size * size)
        if prompt.ready_ns is not None:
            made += [(tokens[:end], prompt.ready_ns, now) for end in range(size, len(tokens) + 1, size)]
            longer = tokens + tuple(prompt.reply or ())[:-1]
            made += [(longer[:end], prompt.end_ns, now) for end in range(size, len(longer) + 1, size) if end > len(tokens) // size * size]
    return expected


CALL = st.tuples(
    st.lists(st.integers(0, 1), max_size=14),
    st.integers(0, 20),
    st.one_of(st.none(), st.integers(0, 5)),
    st.integers(0, 5),
    st.lists(st.integers(0, 1), max_size=6),
)


def built(calls: list[tuple[list[int], int, int | None, int, list[int]]]) -> list[tuple[Prompt, Ids]]:
    ordered = sorted(calls, key=lambda call: call[1])
    return [
        whole(number, ids, start=start, ready=None if took is None else start + took, end=start + (took or 0) + more, reply=reply)
        for number, (ids, start, took, more, reply) in enumerate(ordered)
    ]


@given(st.lists(CALL, max_size=10), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_blocks_without_limits(calls: list[tuple[list[int], int, int | None, int, list[int]]], size: int) -> None:
    """The longest shared prefix, rounded down, is what writing every block down gives."""
    prompts = built(calls)
    assert predicted(prompts, Limits(block_tokens=size)) == written_down(prompts, Limits(block_tokens=size))


@given(st.lists(CALL, max_size=10), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_a_capacity_never_reached_changes_nothing(calls: list[tuple[list[int], int, int | None, int, list[int]]], size: int) -> None:
    """The simulator's cache and the prefix tree are two ways to the same figures."""
    prompts = built(calls)
    assert predicted(prompts, Limits(block_tokens=size, capacity_tokens=1 << 20)) == predicted(prompts, Limits(block_tokens=size))


@given(st.lists(CALL, max_size=10), st.integers(1, 3), st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_a_time_to_live_runs_from_the_last_start(
    calls: list[tuple[list[int], int, int | None, int, list[int]]], size: int, ttl: int
) -> None:
    """Requests one after the other: a block is gone once nobody has started to use it for longer than the time to live."""
    one_by_one, at = [], 0
    for ids, gap, _, more, reply in calls:
        at += gap
        one_by_one.append(whole(len(one_by_one), ids, start=at, ready=at, end=at + more, reply=reply))
        at += more
    limits = Limits(block_tokens=size, ttl_ns=ttl)
    assert predicted(one_by_one, limits) == written_down(one_by_one, limits)


def test_the_oldest_blocks_go_first() -> None:
    """Room for two prompts of two blocks: the third takes the place of the first, and the first is computed again."""
    texts = [[1] * 8, [2] * 8, [3] * 8, [1] * 8]
    prompts = [whole(n, ids, start=10 * n, ready=10 * n + 1, end=10 * n + 2) for n, ids in enumerate(texts)]
    assert predicted(prompts, Limits(block_tokens=4, capacity_tokens=16)) == [0, 0, 0, 0]
    assert predicted(prompts, Limits(block_tokens=4, capacity_tokens=24)) == [0, 0, 0, 4]


def seen(prompt_tokens: Sequence[int], carried: int) -> list[tuple[Prompt, Ids]]:
    """Growing turns: after each prompt `carried` generated tokens come back in the next; the last prompt repeats the one before."""
    prompts: list[tuple[Prompt, Ids]] = []
    ids: list[int] = []
    for number, count in enumerate(prompt_tokens):
        reply = [1_000_000 + number * 100 + k for k in range(carried + 1)]
        if count > len(ids):
            ids = ids + [number * 10_000 + k for k in range(count - len(ids))]
        prompts.append(whole(number, ids, start=10 * number, ready=10 * number + 1, end=10 * number + 2, reply=reply))
        ids = ids + reply[:-1] if number < len(prompt_tokens) - 2 else ids
    return prompts


@pytest.mark.parametrize(
    ("rule", "block", "prompt_tokens", "cached"),
    [
        (llama_cpp, 1, (563, 608, 649, 649), [0, 586, 631, 648]),
        (vllm, 32, (562, 607, 648, 648), [0, 576, 608, 640]),
    ],
)
def test_sequences_seen_on_real_servers(rule: object, block: int, prompt_tokens: tuple[int, ...], cached: list[int]) -> None:
    """llama.cpp and vLLM: three growing turns, then the last again. 23 generated tokens of each turn come back in the next."""
    prompts = seen(prompt_tokens, carried=23)
    found = rule.predict([p for p, _ in prompts], ids_of_all(prompts).__getitem__, Limits(block_tokens=block))  # type: ignore[attr-defined]
    assert list(found) == cached


def test_rounding_follows_the_servers_own_count() -> None:
    """Where a server counts otherwise than we do, whole blocks are blocks of its tokens."""
    first, second = (whole(n, [5] * 40, start=10 * n, ready=10 * n + 1, end=10 * n + 2) for n in (0, 1))
    doubled = [(replace(p, tokens=81), ids) for p, ids in (first, second)]
    assert predicted(doubled, Limits(block_tokens=16)) == [0, 80]
