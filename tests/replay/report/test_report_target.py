"""A report says what the target said of itself, and what its engine counted, escaped like any other captured text."""

from dataclasses import replace
from typing import Any

from report_facts import BEGAN_NS, Played

from replay.report import html, markdown, terminal
from replay.report.facts import Facts, facts

ENGINE = {
    "engine": "vllm", "counters": ["vllm:prompt_tokens_total"], "prompt_tokens": 1100, "cached_tokens": 900, "cached_share": 900 / 1100,
    "own_prompt_tokens": 1000, "turns_without_usage": 0, "isolation_error": 0.1, "contaminated": True, "went_back": False,
}  # fmt: skip
FOUND = {
    "engine": "vllm", "version": "0.32.0", "server": "uvicorn <b>", "flags": {"block_size": "16"},
    "models": [{"id": "m", "max_model_len": 32768}, {"id": "lora", "max_model_len": None}],
}  # fmt: skip


def reported(found: dict[str, Any] | None, engine: dict[str, Any] | None) -> Facts:
    """The facts of one run."""
    subject = Played(1, slower=1.0, reuses=1.0, fails=False).subject()
    assert subject.run is not None
    settings = subject.run.settings if found is None else subject.run.settings | {"target_found": found}
    run = replace(subject.run, settings=settings, summary={"engine": engine})
    return facts([replace(subject, run=run)], trace="/tmp/some.trace", made_ns=BEGAN_NS)


def provenance(found: dict[str, Any] | None) -> str:
    return dict(reported(found, None)["subjects"][0]["provenance"])["Target found"]


def test_the_target_as_found_is_in_the_provenance() -> None:
    """Engine, version, server, models, settings; or that it was not asked, or silent."""
    assert provenance(FOUND) == "vllm 0.32.0, server uvicorn <b>, m (32768 tokens), lora, block_size 16"
    assert provenance(None) == "not asked"
    silent = {"engine": None, "version": None, "server": None, "models": None, "flags": {}}
    assert provenance(silent) == "it said nothing of itself"
    page = html.render(reported(FOUND, None))
    assert "server uvicorn &lt;b&gt;" in page
    assert "uvicorn <b>" not in page


def test_a_contaminated_run_says_so_in_every_format() -> None:
    """As an alert in HTML; without counters there is nothing to say."""
    said = "CONTAMINATED: vllm counted 10.0 % more than this run's turns have: it served others too."
    found = reported(FOUND, ENGINE)
    assert found["subjects"][0]["engine"] == ENGINE
    assert found["subjects"][0]["reuse"]["means"][-1] == said
    assert '<p class="alert">CONTAMINATED: vllm counted 10.0' in html.render(found)
    assert "CONTAMINATED" in markdown.render(found)
    assert "CONTAMINATED" in terminal.render(found)
    assert "CONTAMINATED" not in html.render(reported(FOUND, None))
