"""The simulator's prefix cache in virtual time: published sequences, eviction, expiry, salt, work in flight."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from replay.simulator.cache import Lease, PrefixCache

S = 10**9


def ids(*runs: tuple[int, int]) -> "array[int]":
    """Runs of (first id, how many) in a row."""
    return array("I", [first + number for first, count in runs for number in range(count)])


def serve(cache: PrefixCache, prompt: "array[int]", at_ns: int, *, generated: "array[int] | None" = None, space: str = "m") -> int:
    """One request from start to end within a millisecond; its cached tokens."""
    lease = cache.lookup((space,), prompt, at_ns)
    cache.prefill(lease, at_ns + 500_000)
    cached = lease.cached_tokens
    cache.finish(lease, generated or array("I"), at_ns + 1_000_000)
    return cached


def grown(sizes: tuple[int, ...], generated: int) -> list[tuple["array[int]", "array[int]"]]:
    """Prompts of these sizes; each begins with the one before and the tokens generated then."""
    out: list[tuple[array[int], array[int]]] = []
    for number, size in enumerate(sizes):
        head = out[-1][0] + out[-1][1][:generated] if out else array("I")
        prompt = head + ids((number * 10_000, size - len(head)))
        out.append((prompt, ids((5_000_000 + number * 10_000, generated + 1))))
    return out


def test_llama_cpp_sequence_as_published() -> None:
    """Three growing turns, then the last once more: 0/586/631/648 of 563/608/649/649, as a real llama.cpp reported."""
    cache = PrefixCache(block_tokens=1)
    turns = grown((563, 608, 649), 23)
    assert [serve(cache, prompt, number * S, generated=said) for number, (prompt, said) in enumerate([*turns, turns[-1]])] == [
        0,
        586,
        631,
        648,
    ]


def test_vllm_sequence_as_published() -> None:
    """The same against vLLM with blocks of 32: 0/576/608/640 of 562/607/648/648."""
    cache = PrefixCache(block_tokens=32)
    turns = grown((562, 607, 648), 23)
    assert [serve(cache, prompt, number * S, generated=said) for number, (prompt, said) in enumerate([*turns, turns[-1]])] == [
        0,
        576,
        608,
        640,
    ]


def test_a_prompt_of_whole_blocks_recomputes_its_last_block() -> None:
    """min(hit, n - 1) is rounded down to the block after the cap, not before."""
    cache = PrefixCache(block_tokens=16)
    assert [serve(cache, ids((0, 64)), at) for at in (0, S)] == [0, 48]
    assert serve(cache, ids((0, 65)), 2 * S) == 64


def test_short_and_empty_prompts_have_nothing_cached() -> None:
    """Less than a block is never kept, and nothing can be negative."""
    cache = PrefixCache(block_tokens=16)
    assert [
        serve(cache, prompt, at * S) for at, prompt in enumerate([array("I"), array("I"), ids((0, 15)), ids((0, 15)), ids((0, 16))])
    ] == [0] * 5
    assert PrefixCache(block_tokens=1).lookup(("m",), ids((0, 1)), 0).cached_tokens == 0


def test_two_equal_requests_at_once_both_miss() -> None:
    """A block is there when the prefill that made it has ended, not before."""
    cache = PrefixCache(block_tokens=16)
    first = cache.lookup(("m",), ids((0, 100)), 0)
    cache.prefill(first, 10)
    second = cache.lookup(("m",), ids((0, 100)), 5)
    cache.prefill(second, 15)
    third = cache.lookup(("m",), ids((0, 100)), 10)
    assert (first.cached_tokens, second.cached_tokens, third.cached_tokens) == (0, 0, 96)


def test_model_and_salt_isolate() -> None:
    """Nothing is shared between spaces, and each keeps its own."""
    cache = PrefixCache(block_tokens=16)
    assert [serve(cache, ids((0, 100)), at * S, space=space) for at, space in enumerate(("a", "b", "a", "b"))] == [0, 0, 96, 96]


def test_equal_blocks_after_different_prefixes_are_different() -> None:
    """The chain counts: the same 16 tokens elsewhere are no hit."""
    cache = PrefixCache(block_tokens=16)
    serve(cache, ids((0, 16), (500, 32)), 0)
    assert serve(cache, ids((100, 16), (500, 32)), S) == 0


def test_least_recently_used_goes_first_and_from_its_tail() -> None:
    """Room for eight blocks: a third prompt of three takes one from the tail of the oldest, whose head stays usable."""
    cache = PrefixCache(block_tokens=16, capacity_tokens=8 * 16)
    serve(cache, ids((0, 48)), 0)
    serve(cache, ids((1000, 48)), S)
    serve(cache, ids((2000, 48)), 2 * S)
    assert cache.held_tokens == 128
    assert cache.usage == 1.0
    assert serve(cache, ids((1000, 49)), 3 * S) == 48
    assert serve(cache, ids((0, 33)), 4 * S) == 32
    assert serve(cache, ids((0, 49)), 5 * S) == 32


def test_use_refreshes_against_eviction() -> None:
    """What was used again outlives what was stored later."""
    cache = PrefixCache(block_tokens=16, capacity_tokens=6 * 16)
    for at, first in enumerate((0, 1000, 0, 2000)):
        serve(cache, ids((first, 48)), at * S)
    assert serve(cache, ids((0, 49)), 9 * S) == 48
    assert serve(cache, ids((1000, 49)), 10 * S) == 0


def test_blocks_in_use_are_never_evicted() -> None:
    """A running request keeps its blocks; what then finds no room is not kept."""
    cache = PrefixCache(block_tokens=16, capacity_tokens=4 * 16)
    running = cache.lookup(("m",), ids((0, 48)), 0)
    cache.prefill(running, 1)
    assert serve(cache, ids((1000, 48)), S) == 0
    assert serve(cache, ids((1000, 49)), 2 * S) == 16
    assert cache.held_tokens == 64
    cache.finish(running, array("I"), 3 * S)
    assert serve(cache, ids((0, 49)), 4 * S) == 48


def test_time_to_live_runs_from_the_start_of_the_last_use() -> None:
    """A hit refreshes; after the time without one the prompt is computed anew."""
    cache = PrefixCache(block_tokens=16, ttl_ns=5 * S)
    cached = [serve(cache, ids((0, 65)), at) for at in (0, 4 * S, 9 * S, 14 * S + 1, 15 * S)]
    assert cached == [0, 64, 64, 0, 64]


def test_what_has_expired_takes_no_room() -> None:
    """A cache without capacity but with a time to live does not grow without end."""
    cache = PrefixCache(block_tokens=16, ttl_ns=S)
    for at in range(50):
        serve(cache, ids((at * 1000, 64)), at * 10 * S)
    assert cache.held_tokens == 64


def test_a_client_that_leaves_before_the_prefill_ended_leaves_nothing() -> None:
    """Unless another request computes the same blocks."""
    cache = PrefixCache(block_tokens=16)
    gone = cache.lookup(("m",), ids((0, 64)), 0)
    cache.prefill(gone, 10)
    cache.abandon(gone, 5)
    assert cache.held_tokens == 0
    one, other = (cache.lookup(("m",), ids((0, 64)), at) for at in (20, 21))
    cache.prefill(one, 40)
    cache.prefill(other, 41)
    cache.abandon(one, 30)
    cache.finish(other, array("I"), 50)
    assert serve(cache, ids((0, 65)), 60) == 64


def test_clear_forgets_all_but_what_is_in_use() -> None:
    """As vLLM's reset, which cannot take blocks from a running request."""
    cache = PrefixCache(block_tokens=16)
    serve(cache, ids((0, 64)), 0)
    running = cache.lookup(("m",), ids((9000, 64)), S)
    cache.prefill(running, S + 1)
    cache.clear()
    assert serve(cache, ids((0, 65)), 2 * S) == 0
    assert serve(cache, ids((9000, 65)), 3 * S) == 64


@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=12), st.sampled_from([1, 2, 3]))
def test_without_limits_a_hit_is_the_longest_common_prefix(prompts: list[list[int]], block: int) -> None:
    """Against the plain definition: shared with any earlier prompt, capped at n - 1, in whole blocks of both."""
    cache = PrefixCache(block_tokens=block)
    for at, prompt in enumerate(prompts):
        shared = max((_shared(prompt, earlier) // block * block for earlier in prompts[:at]), default=0)
        expected = max(0, min(shared, len(prompt) - 1)) // block * block
        assert serve(cache, array("I", prompt), at * S) == expected


def _shared(one: list[int], other: list[int]) -> int:
    return next((number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.booleans()), max_size=40))
def test_capacity_is_never_exceeded_and_no_block_is_lost(requests: list[tuple[int, int, bool]]) -> None:
    """Whatever overlaps: at most the capacity is held, and when all have ended everything held can be cleared."""
    cache = PrefixCache(block_tokens=4, capacity_tokens=40)
    running: list[Lease] = []
    for at, (first, size, ends) in enumerate(requests):
        lease = cache.lookup(("m",), ids((first * 100, size)), at)
        cache.prefill(lease, at + 1)
        running.append(lease)
        assert cache.held_tokens <= 40
        if ends:
            cache.finish(running.pop(0), ids((7000, 9)), at + 1)
    for lease in running:
        cache.abandon(lease, len(requests) + 2)
    cache.clear()
    assert cache.held_tokens == 0
