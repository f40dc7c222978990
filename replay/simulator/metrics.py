"""Counters in Prometheus text: under the simulator's own names, and under those of the engine whose rules are played. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """What has been served. `ended` by status."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    running: int = 0
    ended: dict[int, int] = field(default_factory=dict)

    def end(self, status: int) -> None:
        """A model call was answered with this status."""
        self.ended[status] = self.ended.get(status, 0) + 1


type Sample = tuple[str, str, float]


def _vllm(counts: Counts, usage: float) -> list[tuple[str, str, list[Sample]]]:
    computed = counts.prompt_tokens - counts.cached_tokens
    sources: list[Sample] = [
        ("vllm:prompt_tokens_by_source_total", '{source="local_compute"}', computed),
        ("vllm:prompt_tokens_by_source_total", '{source="local_cache_hit"}', counts.cached_tokens),
    ]
    return [
        _counter("vllm:prompt_tokens", counts.prompt_tokens),
        _counter("vllm:prompt_tokens_cached", counts.cached_tokens),
        ("vllm:prompt_tokens_by_source", "counter", sources),
        _counter("vllm:prefix_cache_queries", counts.prompt_tokens),
        _counter("vllm:prefix_cache_hits", counts.cached_tokens),
        _counter("vllm:generation_tokens", counts.output_tokens),
        _gauge("vllm:num_requests_running", counts.running),
        _gauge("vllm:kv_cache_usage_perc", usage),
    ]


def _sglang(counts: Counts, usage: float) -> list[tuple[str, str, list[Sample]]]:
    return [
        _counter("sglang:prompt_tokens", counts.prompt_tokens),
        _counter("sglang:cached_tokens", counts.cached_tokens),
        _counter("sglang:generation_tokens", counts.output_tokens),
        _gauge("sglang:num_running_reqs", counts.running),
        _gauge("sglang:token_usage", usage),
    ]


def _llama_cpp(counts: Counts, usage: float) -> list[tuple[str, str, list[Sample]]]:
    """llama.cpp counts the prompt tokens that it processed: those from its cache are not among them, and are counted apart."""
    return [
        _counter("llamacpp:prompt_tokens", counts.prompt_tokens - counts.cached_tokens),
        _counter("llamacpp:prompt_tokens_cached", counts.cached_tokens),
        _counter("llamacpp:tokens_predicted", counts.output_tokens),
        _gauge("llamacpp:requests_processing", counts.running),
        _gauge("llamacpp:kv_cache_usage_ratio", usage),
    ]


_ENGINES = {"vllm": _vllm, "sglang": _sglang, "llama_cpp": _llama_cpp}


def _counter(name: str, value: float) -> tuple[str, str, list[Sample]]:
    return (name, "counter", [(f"{name}_total", "", value)])


def _gauge(name: str, value: float) -> tuple[str, str, list[Sample]]:
    return (name, "gauge", [(name, "", value)])


def exposition(counts: Counts, *, rules: str, held_tokens: int, usage: float) -> str:
    """The page `/metrics`."""
    ended: list[Sample] = [
        ("playhead_simulator_requests_total", f'{{status="{status}"}}', number) for status, number in sorted(counts.ended.items())
    ]
    families = [
        ("playhead_simulator_requests", "counter", ended),
        _counter("playhead_simulator_prompt_tokens", counts.prompt_tokens),
        _counter("playhead_simulator_cached_tokens", counts.cached_tokens),
        _counter("playhead_simulator_generation_tokens", counts.output_tokens),
        _gauge("playhead_simulator_kv_tokens", held_tokens),
        _gauge("playhead_simulator_kv_usage_ratio", usage),
        *_ENGINES[rules](counts, usage),
    ]
    return "".join(line for family in families for line in _lines(*family))


def _lines(name: str, kind: str, samples: list[Sample]) -> list[str]:
    told = name + ("_total" if kind == "counter" else "")
    return [f"# TYPE {told} {kind}\n", *(f"{sample}{labels} {value!r}\n" for sample, labels, value in samples)]
