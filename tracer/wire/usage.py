"""Token accounts of providers, brought to one: `prompt` counts all of the prompt, cached tokens included; `output` includes reasoning.

Each function takes the provider's usage object as raw members. What is absent stays None, never 0 (docs/reference/metrics.md).
"""

import msgspec

from storage.records import Usage
from tracer.wire.json_values import Fields, Raw, as_text, fields, integer, present


def anthropic(usage: Fields) -> Usage:
    """Disjoint: `input_tokens` is the uncached rest."""
    fresh = integer(usage.get("input_tokens"))
    read = integer(usage.get("cache_read_input_tokens"))
    written = integer(usage.get("cache_creation_input_tokens"))
    if written is None:
        written = _sum_of(fields(usage.get("cache_creation")))
    return Usage(
        prompt=None if fresh is None else fresh + (read or 0) + (written or 0),
        cached=read,
        cache_written=written,
        output=integer(usage.get("output_tokens")),
        reasoning=_first(fields(usage.get("output_tokens_details")), "reasoning_tokens", "thinking_tokens"),
    )


def chat(usage: Fields, timings: Fields) -> Usage:
    """Subset accounting of Chat Completions; `timings` is what llama.cpp adds beside it (`cache_n` and `prompt_n` are disjoint)."""
    inside = fields(usage.get("prompt_tokens_details"))
    cached = _first(inside, "cached_tokens")
    if cached is None:
        cached = _first(usage, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
    if cached is None:
        cached = integer(timings.get("cache_n"))
    prompt = integer(usage.get("prompt_tokens"))
    written = _first(inside, "cache_write_tokens", "cache_creation_tokens", "cache_creation_input_tokens")
    output = integer(usage.get("completion_tokens"))
    reasoning = integer(fields(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    return Usage(
        prompt=_whole_prompt(timings) if prompt is None else prompt,
        cached=cached,
        cache_written=_first(usage, "cache_creation_input_tokens") if written is None else written,
        output=_with_reasoning((prompt, output, reasoning), usage) if output is not None else integer(timings.get("predicted_n")),
        reasoning=reasoning,
    )


def _whole_prompt(timings: Fields) -> int | None:
    cached, fresh = integer(timings.get("cache_n")), integer(timings.get("prompt_n"))
    return None if cached is None or fresh is None else cached + fresh


def _with_reasoning(counts: tuple[int | None, int | None, int | None], usage: Fields) -> int | None:
    """xAI leaves reasoning out of `completion_tokens`: told by the total, which counts it."""
    prompt, output, reasoning = counts
    total = integer(usage.get("total_tokens"))
    if None in (prompt, output, total) or not reasoning:
        return output
    apart = (prompt or 0) + (output or 0) + reasoning == total
    return (output or 0) + reasoning if apart else output


def responses(usage: Fields) -> Usage:
    """Subset accounting of Responses."""
    inside = fields(usage.get("input_tokens_details"))
    return Usage(
        prompt=integer(usage.get("input_tokens")),
        cached=integer(inside.get("cached_tokens")),
        cache_written=_first(inside, "cache_write_tokens", "cache_creation_tokens"),
        output=integer(usage.get("output_tokens")),
        reasoning=integer(fields(usage.get("output_tokens_details")).get("reasoning_tokens")),
    )


def gemini(usage: Fields) -> Usage:
    """`candidatesTokenCount` leaves thoughts out, `promptTokenCount` includes the cached and leaves tool-use prompts out."""
    prompt = integer(usage.get("promptTokenCount"))
    shown, thought = integer(usage.get("candidatesTokenCount")), integer(usage.get("thoughtsTokenCount"))
    return Usage(
        prompt=None if prompt is None else prompt + (integer(usage.get("toolUsePromptTokenCount")) or 0),
        cached=integer(usage.get("cachedContentTokenCount")),
        output=None if shown is None and thought is None else (shown or 0) + (thought or 0),
        reasoning=thought,
    )


def joined(parts: list[Fields]) -> dict[str, Raw]:
    """Usage told in several events: later values replace earlier ones, null replaces nothing."""
    found: dict[str, Raw] = {}
    for part in parts:
        found.update({key: raw for key, raw in part.items() if present(raw) or key not in found})
    return found


def as_json(usage: Fields) -> str | None:
    """A usage object as JSON text, each value as it stood; None when there was none."""
    if not usage:
        return None
    return "{" + ",".join(f"{msgspec.json.encode(key).decode()}:{as_text(raw)}" for key, raw in usage.items()) + "}"


def _first(usage: Fields, *names: str) -> int | None:
    return next((count for name in names if (count := integer(usage.get(name))) is not None), None)


def _sum_of(usage: Fields) -> int | None:
    counts = [count for raw in usage.values() if (count := integer(raw)) is not None]
    return sum(counts) if counts else None
