"""A prefix cache as inference engines keep one: full blocks of token ids in a tree, least recently used first out, time to live.

Pure, in virtual time: every call is told when it happens. One machine for all rules: block 16 is vLLM's hash chain, block 1 the longest
common prefix of llama.cpp and SGLang. It does not know requests, dialects or sockets.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

RULES: dict[str, int] = {"vllm": 16, "sglang": 1, "llama_cpp": 1}
"""The default block of each rule. All recompute at least the last prompt token: min(hit, n - 1), rounded down to the block."""

type Ids = array[int]


@dataclass(slots=True, eq=False)
class Block:
    """One cached block; `key` is its parent and its own tokens, so that equal tokens after different prefixes are different blocks."""

    key: tuple[int, bytes]
    name: int
    ready_ns: int
    used_ns: int
    """Start of the last request that used it: the time to live runs from here."""
    pins: int = 0


@dataclass(slots=True)
class Lease:
    """What one request holds while it is served. `cached_tokens`: prompt tokens that need no prefill."""

    space: int
    ids: Ids
    started_ns: int
    cached_tokens: int
    blocks: list[Block] = field(default_factory=list)
    """The leading full blocks of prompt and answer that are in the cache, pinned."""


class PrefixCache:
    """Blocks by prefix. `capacity_tokens` None: nothing is evicted; `ttl_ns` None: nothing expires."""

    def __init__(self, *, block_tokens: int, capacity_tokens: int | None = None, ttl_ns: int | None = None) -> None:
        self.block_tokens = block_tokens
        self._capacity_blocks = None if capacity_tokens is None else capacity_tokens // block_tokens
        self._ttl_ns = ttl_ns
        self._spaces: dict[tuple[str, ...], int] = {}
        self._names = 0
        self._blocks: dict[tuple[int, bytes], Block] = {}
        self._free: OrderedDict[int, Block] = OrderedDict()
        """Blocks that nobody holds, the next to be evicted first."""

    @property
    def held_tokens(self) -> int:
        """Tokens in the cache now, in use or not."""
        return len(self._blocks) * self.block_tokens

    @property
    def usage(self) -> float:
        """Share of the capacity that is taken, 0 where the capacity is infinite."""
        return len(self._blocks) / self._capacity_blocks if self._capacity_blocks else 0.0

    def lookup(self, space: tuple[str, ...], ids: Ids, now_ns: int) -> Lease:
        """Finds and pins what a prompt starting now can reuse. `space`: model, salt, ...: what must be equal beside the tokens."""
        self._purge(now_ns)
        lease = Lease(self._space(space), ids, now_ns, 0)
        for key in self._keys(lease.space, ids, lease.blocks):
            block = self._blocks.get(key)
            if block is None or block.ready_ns > now_ns or self._expired(block, now_ns):
                break
            self._pin(block, lease)
        hit = len(lease.blocks) * self.block_tokens
        lease.cached_tokens = max(0, min(hit, len(ids) - 1)) // self.block_tokens * self.block_tokens
        return lease

    def prefill(self, lease: Lease, ready_ns: int) -> None:
        """Puts the rest of the prompt's full blocks in; others can use them from `ready_ns` on. Stops where no room can be made."""
        self._extend(lease, lease.ids, ready_ns)

    def finish(self, lease: Lease, generated: Ids, now_ns: int) -> None:
        """The answer has ended: its full blocks are kept too (the last token's state is never computed), and all is let go."""
        if len(lease.blocks) == len(lease.ids) // self.block_tokens:
            self._extend(lease, lease.ids + generated[:-1], now_ns)
        self._release(lease, now_ns)

    def abandon(self, lease: Lease, now_ns: int) -> None:
        """The client left: what was not computed by now is dropped, unless another request computes it too."""
        self._release(lease, now_ns)

    def clear(self) -> None:
        """Forgets every block that no request holds at this moment."""
        for block in self._free.values():
            del self._blocks[block.key]
        self._free.clear()

    def _space(self, space: tuple[str, ...]) -> int:
        if space not in self._spaces:
            self._spaces[space] = self._name()
        return self._spaces[space]

    def _name(self) -> int:
        self._names += 1
        return self._names

    def _keys(self, space: int, ids: Ids, path: list[Block]) -> Iterator[tuple[int, bytes]]:
        """Key of each full block in turn; the caller puts the block of the key before on `path`."""
        size = self.block_tokens * ids.itemsize
        raw = ids.tobytes()
        for number in range(len(path), len(ids) // self.block_tokens):
            parent = path[-1].name if path else space
            yield parent, raw[number * size : (number + 1) * size]

    def _extend(self, lease: Lease, ids: Ids, ready_ns: int) -> None:
        for key in self._keys(lease.space, ids, lease.blocks):
            block = self._blocks.get(key) or self._add(key, ready_ns, lease.started_ns)
            if block is None:
                return
            if self._expired(block, lease.started_ns):
                block.ready_ns = ready_ns
            block.ready_ns = min(block.ready_ns, ready_ns)
            self._pin(block, lease)

    def _add(self, key: tuple[int, bytes], ready_ns: int, started_ns: int) -> Block | None:
        if self._capacity_blocks is not None and len(self._blocks) >= self._capacity_blocks:
            if not self._free:
                return None
            _, evicted = self._free.popitem(last=False)
            del self._blocks[evicted.key]
        block = Block(key, self._name(), ready_ns, started_ns)
        self._blocks[key] = block
        return block

    def _pin(self, block: Block, lease: Lease) -> None:
        block.pins += 1
        block.used_ns = max(block.used_ns, lease.started_ns)
        self._free.pop(block.name, None)
        lease.blocks.append(block)

    def _release(self, lease: Lease, now_ns: int) -> None:
        """Tail blocks first, so that they are the first to be evicted and a block never outlives the one before it."""
        for block in reversed(lease.blocks):
            block.pins -= 1
            if block.pins:
                continue
            if block.ready_ns > now_ns:
                del self._blocks[block.key]
            else:
                self._free[block.name] = block
        lease.blocks.clear()

    def _expired(self, block: Block, now_ns: int) -> bool:
        return self._ttl_ns is not None and now_ns - block.used_ns > self._ttl_ns

    def _purge(self, now_ns: int) -> None:
        """Drops what has expired from the old end of the queue, so that a long run does not grow without end."""
        while self._free:
            block = next(iter(self._free.values()))
            if not self._expired(block, now_ns):
                return
            del self._free[block.name]
            del self._blocks[block.key]
