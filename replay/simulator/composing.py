"""Makes an answer out of what is to be said: in tokens, cut to the limit, padded to the least, with the ids that its tokens have. Pure."""

import codecs
import hashlib
from collections.abc import Iterator

from replay.simulator.values import Asked, CallTool, Say, Spoken, Step
from tracer import tokens

_FILLER = " and so on"


def pieces(text: str) -> tuple[str, ...]:
    """The text of each token of a text, in order; empty where a token ends inside a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return tuple(decoder.decode(tokens.token_bytes(token)) for token in tokens.text_ids(text))


def spoken(steps: tuple[Step, ...], asked: Asked, name: str) -> tuple[Spoken, ...]:
    """The steps in tokens, at most and at least as many as the request wants. `name` makes ids of tool calls unique."""
    whole = tuple(_speak(step, f"{name}{number}") for number, step in enumerate(_padded(steps, asked)))
    return tuple(_cut(whole, asked.most_tokens))


def _padded(steps: tuple[Step, ...], asked: Asked) -> tuple[Step, ...]:
    """More words where the request wants more tokens than there are: what vLLM's `min_tokens` and `ignore_eos` do."""
    there = sum(len(tokens.text_ids(step.text if isinstance(step, Say) else step.given)) for step in steps)
    missing = (asked.least_tokens or 0) - there
    if missing <= 0:
        return steps
    first = steps[0]
    more = _FILLER * (missing // len(tokens.text_ids(_FILLER)) + 1)
    return (Say(first.text + more), *steps[1:]) if isinstance(first, Say) else (Say(more), *steps)


def _speak(step: Step, name: str) -> Spoken:
    if isinstance(step, CallTool):
        return Spoken(pieces(step.given), hashlib.sha256(name.encode()).hexdigest()[:20], step.tool)
    return Spoken(pieces(step.text))


def _cut(parts: tuple[Spoken, ...], most: int | None) -> Iterator[Spoken]:
    left = most
    for part in parts:
        kept = part.pieces if left is None else part.pieces[:left]
        left = None if left is None else left - len(kept)
        if kept:
            yield Spoken(kept, part.call_id, part.tool)


def stop(steps: tuple[Step, ...], asked: Asked, output: int) -> str:
    """Why the answer ends: length when the limit was reached, tool when one is called, else end."""
    if asked.most_tokens is not None and output >= asked.most_tokens:
        whole = sum(len(tokens.text_ids(step.text if isinstance(step, Say) else step.given)) for step in steps)
        if whole > asked.most_tokens or asked.least_tokens:
            return "length"
    return "tool" if any(isinstance(step, CallTool) for step in steps) else "end"
