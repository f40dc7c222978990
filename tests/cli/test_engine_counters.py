"""A replay against the simulator under each engine's names: the engine's counters say what the answers said, and tell other traffic."""

import json
import threading
import urllib.request
from pathlib import Path

import pytest
import recorded_chats
from commands import Ended, playhead, serving

CACHED_COUNTERS = {
    "vllm": "vllm:prompt_tokens_cached_total",
    "sglang": "sglang:cached_tokens_total",
    "llama_cpp": "llamacpp:prompt_tokens_cached_total",
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of two sessions of three turns."""
    where = tmp_path / "recorded.trace"
    recorded_chats.write(where)
    return where


def replayed(trace: Path, url: str, *more: object) -> Ended:
    return playhead("replay", "--trace", trace, "--target", url, "--length", "recorded", *more)


@pytest.mark.parametrize("rules", CACHED_COUNTERS)
def test_the_engines_counters_agree_with_the_answers(rules: str, trace: Path) -> None:
    """To the token; llama.cpp's, which leave cached tokens out, too."""
    with serving("simulate", "--rules", rules, "--script", "plain", "--model", "gpt-5", "--base-ms", 1, "--decode-tps", 2000) as (_, url):
        summary = replayed(trace, url, "--json").document
        words = replayed(trace, url)
    engine = summary["engine"]
    assert summary["failed"] == 0
    assert summary["cached_tokens"] > 0
    assert engine["engine"] == rules
    assert engine["prompt_tokens"] == engine["own_prompt_tokens"] == summary["prompt_tokens"]
    assert engine["cached_tokens"] == summary["cached_tokens"]
    assert engine["counters"][1:] == [CACHED_COUNTERS[rules]]
    assert (engine["isolation_error"], engine["contaminated"], engine["turns_without_usage"]) == (0, False, 0)
    (line,) = [line for line in words.out.splitlines() if line.startswith("Counted by ")]
    assert line.startswith(f"Counted by {rules}: prompt {summary['prompt_tokens']}, cached ")
    assert line.endswith("isolation error 0.0 %.")
    assert max(map(len, words.out.splitlines())) <= 80
    (listed, _) = playhead("runs", "--trace", trace, "--json").document
    found = listed["target_found"]
    assert (found["engine"], found["models"][0]["id"]) == (rules, "gpt-5")
    assert listed["engine"] == engine
    report = json.loads(playhead("report", "r1", "--trace", trace, "--format", "json").out)
    (subject,) = report["subjects"]
    assert subject["engine"] == engine
    assert ["Target found", f"{rules}, gpt-5"] in subject["provenance"]
    assert any(said.startswith(f"Counted by {rules}") for said in subject["reuse"]["means"])


def test_other_traffic_contaminates_a_run(trace: Path) -> None:
    """Said before the figures, by the replay, by a comparison, in the report; the gaps leave it time to come."""
    with serving("simulate", "--script", "plain", "--base-ms", 1) as (_, url):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "something else " * 300}]}).encode()
        ask = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
        over = threading.Event()

        def go_on() -> None:
            while not over.is_set():
                with urllib.request.urlopen(ask, timeout=10):
                    pass

        other = threading.Thread(target=go_on)
        other.start()
        try:
            contaminated = replayed(trace, url, "--json")
        finally:
            over.set()
            other.join(20)
        alone = replayed(trace, url, "--json")
    engine = contaminated.document["engine"]
    assert engine["contaminated"]
    assert engine["isolation_error"] > 0.01
    assert engine["prompt_tokens"] > engine["own_prompt_tokens"] == contaminated.document["prompt_tokens"]
    assert "CONTAMINATED: vllm counted" in contaminated.err
    assert alone.document["engine"]["contaminated"] is False
    assert "CONTAMINATED" not in alone.err
    compared = playhead("compare", "r2", "r1", "--trace", trace)
    assert "r1: CONTAMINATED: vllm counted" in compared.err
    for form in ("text", "markdown", "html"):
        place = trace.parent / f"report.{form}"
        playhead("report", "r1", "--trace", trace, "--format", form, "--output", place)
        assert "CONTAMINATED" in place.read_text()
