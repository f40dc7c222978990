"""What a cache of full blocks reuses of each prompt, without limits or with a capacity and a time to live.

Pure. Without limits a block is there exactly when some earlier finished sequence begins with the same tokens up to its end, so the longest
shared prefix says all; with limits the simulator's own cache (`replay.simulator.cache`) is run through the same events. It does not know
which engine has which block size.
"""

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from replay.reuse.ideal import Prompt, leading, scaled
from replay.reuse.prefix_tree import Ids, IdsOf
from replay.simulator.cache import Lease, PrefixCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`block_tokens`: only whole blocks are reused. None: no limit. The capacity is in tokens as counted here."""

    block_tokens: int
    capacity_tokens: int | None = None
    ttl_ns: int | None = None
    """From the start of the last request that used a block."""


def reused(prompts: Sequence[Prompt], ids_of: IdsOf, limits: Limits) -> Iterator[int]:
    """Tokens of each prompt that need no prefill, as its server counts them: at most all but one, in whole blocks. In order of start."""
    bounded = limits.capacity_tokens is not None or limits.ttl_ns is not None
    found = _bounded(prompts, ids_of, limits) if bounded else leading(prompts, ids_of, generated=True)
    for prompt, tokens in zip(prompts, found, strict=True):
        yield max(0, min(scaled(tokens, prompt), prompt.tokens - 1)) // limits.block_tokens * limits.block_tokens


def _bounded(prompts: Iterable[Prompt], ids_of: IdsOf, limits: Limits) -> Iterator[int]:
    """The cache is told of every start, and of every end before the next start."""
    cache = PrefixCache(block_tokens=limits.block_tokens, capacity_tokens=limits.capacity_tokens, ttl_ns=limits.ttl_ns)
    running: list[tuple[int, int, Prompt, Lease]] = []
    for number, prompt in enumerate(prompts):
        while running and running[0][0] <= prompt.start_ns:
            _end(cache, *heapq.heappop(running)[2:])
        lease = cache.lookup((prompt.space,), _all_ids(prompt, ids_of), prompt.start_ns)
        yield len(lease.blocks) * limits.block_tokens
        if prompt.ready_ns is not None:
            cache.prefill(lease, prompt.ready_ns)
        heapq.heappush(running, (max(prompt.end_ns, prompt.ready_ns or 0), number, prompt, lease))


def _end(cache: PrefixCache, prompt: Prompt, lease: Lease) -> None:
    if prompt.ready_ns is None:
        cache.abandon(lease, prompt.end_ns)
    else:
        cache.finish(lease, prompt.reply or array("I"), max(prompt.end_ns, prompt.ready_ns))


def _all_ids(prompt: Prompt, ids_of: IdsOf) -> Ids:
    ids: Ids = array("I")
    for name in prompt.path:
        ids.extend(ids_of(name))
    return ids
