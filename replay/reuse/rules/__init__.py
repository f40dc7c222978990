"""What a server's own rules allow of a prefix: one module an engine, named in RULES. Pure; the modules do not know each other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from replay.reuse.blocks import Limits
from replay.reuse.ideal import Prompt
from replay.reuse.prefix_tree import IdsOf
from replay.reuse.rules import llama_cpp, vllm
from storage.errors import PlayheadError


class Engine(Protocol):
    """One engine's rules, as a module."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """As `--rules` says it."""
        ...

    @property
    def BLOCK_TOKENS(self) -> int:  # noqa: N802 - a module constant
        """Its default block."""
        ...

    def predict(self, prompts: Sequence[Prompt], ids_of: IdsOf, limits: Limits) -> Iterator[int]:
        """Tokens of each prompt that the engine has in its cache. `prompts` in order of start."""
        ...


RULES: tuple[Engine, ...] = (vllm, llama_cpp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An engine's rules with the limits asked for."""

    engine: Engine
    limits: Limits


def rule(name: str, *, block: int | None = None, capacity: int | None = None, ttl_s: float | None = None) -> Rule:
    """The rules of this name. Raises PlayheadError where there are none."""
    engine = next((engine for engine in RULES if name == engine.NAME), None)
    if engine is None:
        raise PlayheadError(f"there are no rules named {name!r}", hint="use one of: " + ", ".join(engine.NAME for engine in RULES))
    ttl_ns = None if ttl_s is None else round(ttl_s * 1e9)
    return Rule(engine=engine, limits=Limits(block_tokens=block or engine.BLOCK_TOKENS, capacity_tokens=capacity, ttl_ns=ttl_ns))
