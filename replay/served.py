"""What an engine's own counters say it served during a run, held against what the run's turns say they were. Pure.

Counters that count a retried or preempted request twice are not used where the engine has clean ones. It does not know how a page of
counters is fetched.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from replay.exposition import Sample
from storage.records import ExchangeRow

CONTAMINATED = 0.01
"""A run is contaminated when the engine counted this much more or less than the run's own prompt tokens."""


@dataclass(frozen=True, slots=True)
class _Counter:
    """The sum of a name's samples; `without`: a label whose samples are left out."""

    name: str
    without: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """Where an engine counts prompt tokens, and where those from its cache: the first name that is there."""

    name: str
    prompt: tuple[_Counter, ...]
    cached: tuple[_Counter, ...]
    prompt_holds_cached: bool = True


_ENGINES = (
    _Engine(
        name="vllm",
        prompt=(_Counter("vllm:prompt_tokens_total"),),
        cached=(
            _Counter("vllm:prompt_tokens_cached_total"),
            _Counter("vllm:prompt_tokens_by_source_total", without=("source", "local_compute")),
            # Older versions have only this one: it counts preempted requests again.
            _Counter("vllm:prefix_cache_hits_total"),
        ),
    ),
    _Engine(
        name="sglang",
        prompt=(_Counter("sglang:prompt_tokens_total"), _Counter("sglang_prompt_tokens_total")),
        cached=(_Counter("sglang:cached_tokens_total"), _Counter("sglang_cached_tokens_total")),
    ),
    _Engine(
        name="tensorrt_llm",
        prompt=(_Counter("trtllm_prompt_tokens_total"),),
        cached=(_Counter("trtllm_prompt_cached_tokens_total"),),
    ),
    _Engine(
        name="llama_cpp",
        prompt=(_Counter("llamacpp:prompt_tokens_total"),),
        cached=(_Counter("llamacpp:prompt_tokens_cached_total"),),
        prompt_holds_cached=False,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """An engine's counters at one moment. `prompt` is as the engine counts; `cached` is None where it does not count them."""

    engine: str
    prompt: float
    cached: float | None
    prompt_holds_cached: bool
    counters: tuple[str, ...]
    """The names of the counters read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """The run's own prompt tokens, by the usage of its answers. `unknown`: turns that the engine may have counted and that did not say."""

    prompt: int
    cached: int | None
    unknown: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What was counted between two moments. `prompt_tokens` include the cached ones, whatever the engine's own habit."""

    engine: str
    counters: tuple[str, ...]
    prompt_tokens: int | None
    cached_tokens: int | None
    own: Own
    went_back: bool
    """A counter was smaller at the end than at the start: the engine was started anew, nothing can be said."""

    @property
    def cached_share(self) -> float | None:
        """Cached of prompt tokens, as counted by the engine."""
        return None if self.cached_tokens is None or not self.prompt_tokens else self.cached_tokens / self.prompt_tokens

    @property
    def isolation_error(self) -> float | None:
        """How much more the engine counted than the run's turns have, as a share of theirs; None while a turn's tokens are unknown."""
        if self.prompt_tokens is None or self.own.unknown or not self.own.prompt:
            return None
        return (self.prompt_tokens - self.own.prompt) / self.own.prompt

    @property
    def contaminated(self) -> bool | None:
        """Whether the counters speak of other traffic, or not of all of this run's."""
        return None if self.isolation_error is None else abs(self.isolation_error) > CONTAMINATED


def counted(page: Sequence[Sample]) -> Counted | None:
    """The clean counters on a page; None where it has no engine's that is known."""
    for engine in _ENGINES:
        prompt, cached = _first(engine.prompt, page), _first(engine.cached, page)
        if prompt is not None:
            return Counted(
                engine=engine.name,
                prompt=prompt[1],
                cached=cached and cached[1],
                prompt_holds_cached=engine.prompt_holds_cached,
                counters=(prompt[0],) if cached is None else (prompt[0], cached[0]),
            )
    return None


def _first(counters: Sequence[_Counter], page: Sequence[Sample]) -> tuple[str, float] | None:
    """Name and sum of the first counter that is on the page with finite values; an engine has a sample for each of its parts."""
    for counter in counters:
        named = [sample for sample in page if sample.name == counter.name]
        total = sum(sample.value for sample in named if counter.without not in sample.labels)
        if named and math.isfinite(total):
            return counter.name, total
    return None


def own(rows: Sequence[ExchangeRow]) -> Own:
    """What the turns of a run say: without token counts, and without what was refused or never sent."""
    asked = [row for row in rows if _may_have_been_counted(row)]
    prompts = [row.usage.prompt for row in asked if row.usage.prompt is not None]
    cached = [row.usage.cached for row in asked if row.usage.cached is not None]
    return Own(prompt=sum(prompts), cached=sum(cached) if len(cached) == len(asked) else None, unknown=len(asked) - len(prompts))


def _may_have_been_counted(row: ExchangeRow) -> bool:
    if row.kind == "count_tokens":
        return False
    if row.status is None:
        return row.sent_ns is not None
    return not 400 <= row.status < 500


def served(before: Counted | None, after: Counted | None, run: Own) -> Served | None:
    """What was counted in between; None when it was not the same engine, or none, at both moments."""
    if before is None or after is None or before.counters != after.counters:
        return None
    prompt = round(after.prompt - before.prompt)
    cached = None if before.cached is None or after.cached is None else round(after.cached - before.cached)
    went_back = prompt < 0 or (cached or 0) < 0
    whole = None if went_back else _whole(prompt, cached, after, run)
    return Served(
        engine=after.engine,
        counters=after.counters,
        prompt_tokens=whole,
        cached_tokens=None if went_back else cached,
        own=run,
        went_back=went_back,
    )


def _whole(prompt: int, cached: int | None, after: Counted, run: Own) -> int | None:
    """All prompt tokens: llama.cpp leaves cached ones out of its prompt tokens, and older ones of it count them nowhere; then the run's
    own word is the only one there is."""
    if after.prompt_holds_cached:
        return prompt
    rest = run.cached if cached is None else cached
    return None if rest is None else prompt + rest


def figures(before: Counted | None, after: Counted | None, rows: Sequence[ExchangeRow]) -> dict[str, Any] | None:
    """What the engine counted while the turns in `rows` were played, as it is stored; None where it counted nothing."""
    found = served(before, after, own(rows))
    return None if found is None else document(found)


def document(found: Served) -> dict[str, Any]:
    """As it is stored with the run."""
    return {
        "engine": found.engine,
        "counters": list(found.counters),
        "prompt_tokens": found.prompt_tokens,
        "cached_tokens": found.cached_tokens,
        "cached_share": found.cached_share,
        "own_prompt_tokens": found.own.prompt,
        "turns_without_usage": found.own.unknown,
        "isolation_error": found.isolation_error,
        "contaminated": found.contaminated,
        "went_back": found.went_back,
    }


def sentence(engine: dict[str, Any]) -> str:
    """A stored document in one line."""
    name, error = engine["engine"], engine["isolation_error"]
    if engine["went_back"]:
        return f"ERROR: the counters of {name} went back: it was started anew during the run."
    if engine["contaminated"]:
        than = "more than this run's turns have: it served others too" if error > 0 else "less than this run's turns have"
        return f"CONTAMINATED: {name} counted {100 * abs(error):.1f} % {than}."
    said = [f"Counted by {name}: prompt {_count(engine['prompt_tokens'])}, cached {_count(engine['cached_tokens'])}"]
    if engine["cached_share"] is not None:
        said.append(f" ({100 * engine['cached_share']:.1f} %)")
    said.append("; isolation unknown." if error is None else f"; isolation error {100 * error:.1f} %.")
    return "".join(said)


def _count(figure: int | None) -> str:
    return "unknown" if figure is None else f"{figure:,}"
