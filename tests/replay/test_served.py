"""Which counters are read of each engine, and what their difference says of a run."""

from typing import Any

import pytest
from report_facts import exchange

from replay import served
from replay.exposition import samples
from replay.served import Counted, Own
from storage.records import ExchangeRow, Usage

VLLM = """\
vllm:prompt_tokens_total{engine="0"} 1000
vllm:prompt_tokens_total{engine="1"} 500
vllm:prompt_tokens_cached_total{engine="0"} 700
vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 790
vllm:prompt_tokens_by_source_total{engine="0",source="local_cache_hit"} 600
vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} 110
vllm:prefix_cache_hits_total{engine="0"} 9000
vllm:prompt_tokens_created{engine="0"} 1.7e9
"""


def read(page: str) -> Counted:
    found = served.counted(samples(page))
    assert found is not None
    return found


def without(page: str, name: str) -> str:
    return "".join(line + "\n" for line in page.splitlines() if not line.startswith(name))


def test_vllm_is_read_by_the_counters_that_count_once() -> None:
    """All engines of a server together; what an older version has where a newer one's is missing."""
    newest = read(VLLM)
    assert (newest.engine, newest.prompt, newest.cached) == ("vllm", 1500, 700)
    assert newest.counters == ("vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total")
    by_source = without(VLLM, "vllm:prompt_tokens_cached")
    assert (read(by_source).cached, read(by_source).counters[1]) == (710, "vllm:prompt_tokens_by_source_total")
    oldest = without(by_source, "vllm:prompt_tokens_by")
    assert (read(oldest).cached, read(oldest).counters[1]) == (9000, "vllm:prefix_cache_hits_total")
    assert read(without(oldest, "vllm:prefix")).cached is None


@pytest.mark.parametrize(
    ("page", "engine", "prompt", "cached"),
    [
        (
            ('sglang:prompt_tokens_total{m="x"} 90\nsglang:cached_tokens_total{cache_source="device"} 40\n'
            'sglang:cached_tokens_total{cache_source="host"} 2\nsglang:cache_hit_rate 0.9\n'),
            "sglang", 90, 42,
        ),
        ("sglang_prompt_tokens_total 90\nsglang_cached_tokens_total 40\n", "sglang", 90, 40),
        ("trtllm_prompt_tokens_total 1800\ntrtllm_prompt_cached_tokens_total 450\n", "tensorrt_llm", 1800, 450),
        ("llamacpp:prompt_tokens_total 10\nllamacpp:prompt_tokens_cached_total 30\n", "llama_cpp", 10, 30),
        ("llamacpp:prompt_tokens_total 10\n", "llama_cpp", 10, None),
        ("vllm:prompt_tokens_total 10\nvllm:prompt_tokens_cached_total NaN\n", "vllm", 10, None),
    ],
    ids=["sglang", "sglang without colons", "tensorrt_llm", "llama_cpp", "older llama_cpp", "not a number"],
)  # fmt: skip
def test_each_engine_has_its_names(page: str, engine: str, prompt: float, cached: float | None) -> None:
    """Whatever labels they carry."""
    found = read(page)
    assert (found.engine, found.prompt, found.cached) == (engine, prompt, cached)


def test_a_page_without_a_known_engine_counts_nothing() -> None:
    """Nor does one whose prompt counter says no number."""
    assert served.counted(samples("process_cpu_seconds_total 4\n")) is None
    assert served.counted(samples("vllm:prompt_tokens_total NaN\n")) is None


def at(prompt: float, cached: float | None, engine: str = "vllm", *, holds: bool = True) -> Counted:
    names = ("prompt",) if cached is None else ("prompt", "cached")
    return Counted(engine=engine, prompt=prompt, cached=cached, prompt_holds_cached=holds, counters=names)


def between(before: Counted, after: Counted, run: Own) -> dict[str, Any]:
    found = served.served(before, after, run)
    assert found is not None
    return served.document(found)


RUN = Own(prompt=1000, cached=800, unknown=0)


def test_the_difference_is_held_against_what_the_run_sent() -> None:
    """Figures, and the sentence."""
    said = between(at(5000, 100), at(6000, 900), RUN)
    assert (said["prompt_tokens"], said["cached_tokens"], said["cached_share"]) == (1000, 800, 0.8)
    assert (said["isolation_error"], said["contaminated"], said["went_back"]) == (0, False, False)
    assert served.sentence(said) == "Counted by vllm: prompt 1,000, cached 800 (80.0 %); isolation error 0.0 %."


@pytest.mark.parametrize(
    ("counted", "contaminated", "words"),
    [
        (1010, False, "isolation error 1.0 %"),
        (1011, True, "CONTAMINATED: vllm counted 1.1 % more than this run's turns have: it served others too."),
        (990, False, "isolation error -1.0 %"),
        (500, True, "CONTAMINATED: vllm counted 50.0 % less than this run's turns have."),
    ],
)
def test_beyond_one_percent_either_way_a_run_is_contaminated(counted: int, contaminated: bool, words: str) -> None:
    """One percent itself is within."""
    said = between(at(0, 0), at(counted, 400), RUN)
    assert said["contaminated"] is contaminated
    assert said["isolation_error"] == pytest.approx(counted / 1000 - 1)
    assert words in served.sentence(said)


def test_llama_cpp_leaves_cached_tokens_out_of_its_prompt_tokens() -> None:
    """They are added: its own where it counts them, else those of the run, else nothing can be said."""
    newer = between(at(10, 20, "llama_cpp", holds=False), at(210, 820, "llama_cpp", holds=False), RUN)
    assert (newer["prompt_tokens"], newer["cached_tokens"], newer["isolation_error"]) == (1000, 800, 0)
    older = between(at(10, None, "llama_cpp", holds=False), at(230, None, "llama_cpp", holds=False), RUN)
    assert (older["prompt_tokens"], older["cached_tokens"], older["cached_share"]) == (1020, None, None)
    assert older["contaminated"] is True
    silent = Own(prompt=1000, cached=None, unknown=0)
    unsaid = between(at(10, None, "llama_cpp", holds=False), at(210, None, "llama_cpp", holds=False), silent)
    assert (unsaid["prompt_tokens"], unsaid["isolation_error"], unsaid["contaminated"]) == (None, None, None)
    assert served.sentence(unsaid) == "Counted by llama_cpp: prompt unknown, cached unknown; isolation unknown."


def test_while_a_turn_did_not_say_its_tokens_nothing_is_said_of_isolation() -> None:
    """Nor for a run of nothing; the counters themselves are told."""
    for run in (Own(prompt=900, cached=None, unknown=1), Own(prompt=0, cached=0, unknown=0)):
        said = between(at(0, 0), at(1000, 800), run)
        assert (said["prompt_tokens"], said["isolation_error"], said["contaminated"]) == (1000, None, None)
        assert "isolation unknown" in served.sentence(said)


def test_counters_that_went_back_are_an_error() -> None:
    """A server that was started anew in between."""
    said = between(at(5000, 100), at(300, 200), RUN)
    assert (said["went_back"], said["prompt_tokens"], said["cached_tokens"], said["contaminated"]) == (True, None, None, None)
    assert served.sentence(said).startswith("ERROR: the counters of vllm went back")


def test_without_the_same_counters_at_both_moments_there_is_nothing() -> None:
    """None, not zeros."""
    assert served.figures(None, at(1, 1), ()) is None
    assert served.figures(at(1, 1), None, ()) is None
    assert served.figures(at(1, 1), at(2, None), ()) is None


def turn(number: int, prompt: int | None, cached: int | None = 5, **more: Any) -> ExchangeRow:
    return exchange(number, usage=Usage(prompt=prompt, cached=cached), **more)


def test_a_runs_own_tokens_are_those_that_an_engine_would_have_counted() -> None:
    """Not token counts, not what was refused, not what was never sent; what was cut short may have been counted."""
    refused = turn(3, None, status=400, state="complete")
    unsent = turn(4, None, status=None, state="failed", sent_ns=None)
    counting = turn(5, 70, kind="count_tokens")
    rows = [turn(1, 100), turn(2, 50), refused, unsent, counting]
    assert served.own(rows) == Own(prompt=150, cached=10, unknown=0)
    assert served.own([*rows, turn(6, None, None, status=500)]) == Own(prompt=150, cached=None, unknown=1)
    assert served.own([*rows, turn(7, None, None, status=None)]).unknown == 1
    assert served.own([*rows, turn(8, 10, None)]) == Own(prompt=160, cached=None, unknown=0)
