"""What a cache without limits could reuse: leading tokens shared with any earlier prompt whose prefill had finished, per model.

Pure. Two variants: prompts only (all that a replay of recorded history can reach) and prompts with what was generated after them. It does
not know how prompts are stored, nor any server's rules.
"""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from replay.reuse.prefix_tree import Ids, IdsOf, PrefixTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request as a cache sees it. Times are Unix-epoch ns.

    `path`: names of its elements in prompt order, each standing for the prompt up to there; `estimate` its tokens as counted here, `tokens`
    as the server counted them (the estimate where it did not say). `ready_ns`: its prefill had finished; None: it never did.
    """

    exchange: int
    space: str
    """What must be equal beside the tokens: the model."""
    start_ns: int
    ready_ns: int | None
    end_ns: int
    path: tuple[int, ...]
    estimate: int
    tokens: int
    reply: Ids | None = None
    """What was generated, in tokens as a later prompt carries it."""


def scaled(found: int, prompt: Prompt) -> int:
    """Tokens counted here as the server would count them: by the ratio of the two totals, never more than the prompt."""
    if prompt.tokens == prompt.estimate or not prompt.estimate:
        return min(found, prompt.tokens)
    return min(prompt.tokens, found * prompt.tokens // prompt.estimate)


def leading(prompts: Iterable[Prompt], ids_of: IdsOf, *, generated: bool = False) -> Iterator[int]:
    """For each prompt, in order of start: its leading tokens (counted here) that were there when it started."""
    trees: dict[str, PrefixTree] = {}
    coming: list[tuple[int, int, Prompt, bool]] = []
    for number, prompt in enumerate(prompts):
        while coming and coming[0][0] <= prompt.start_ns:
            _, _, earlier, with_reply = heapq.heappop(coming)
            _put(trees[earlier.space], earlier, with_reply=with_reply)
        yield trees.setdefault(prompt.space, PrefixTree(ids_of)).shared(prompt.path)
        if prompt.ready_ns is not None:
            heapq.heappush(coming, (prompt.ready_ns, 2 * number, prompt, False))
            if generated and prompt.reply:
                heapq.heappush(coming, (max(prompt.end_ns, prompt.ready_ns), 2 * number + 1, prompt, True))


def _put(tree: PrefixTree, prompt: Prompt, *, with_reply: bool) -> None:
    """The last generated token is left out: its state is computed only when it is fed back."""
    if with_reply and prompt.reply:
        tree.put_after(prompt.path, prompt.reply[:-1])
    else:
        tree.put(prompt.path)


def ideal(prompts: Iterable[Prompt], ids_of: IdsOf) -> Iterator[int]:
    """Reusable tokens of each prompt, as its server counts them, prompts only. `prompts` in order of start."""
    return _scaled(prompts, ids_of, generated=False)


def ideal_with_generated(prompts: Iterable[Prompt], ids_of: IdsOf) -> Iterator[int]:
    """The same where what was generated can be reused too."""
    return _scaled(prompts, ids_of, generated=True)


def possible(prompts: Iterable[Prompt], ids_of: IdsOf) -> Iterator[int]:
    """The most that a server can have reused: of all that was sent before, whether or not its client had heard of it yet.

    A server is done with a prefill before its client sees the first token, and a request sent in between may well find it.
    """
    known = [
        replace(prompt, ready_ns=prompt.start_ns, end_ns=prompt.start_ns if prompt.ready_ns is None else prompt.ready_ns)
        for prompt in prompts
    ]
    return _scaled(known, ids_of, generated=True)


def _scaled(prompts: Iterable[Prompt], ids_of: IdsOf, *, generated: bool) -> Iterator[int]:
    kept = list(prompts)
    for prompt, found in zip(kept, leading(kept, ids_of, generated=generated), strict=True):
        yield scaled(found, prompt)
