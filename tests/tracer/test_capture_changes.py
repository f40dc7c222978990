"""What is recognised outlasts changes that leave the answer key true: no signal, order or wording is needed alone."""

import capture_changes
import captures
import pytest

pytestmark = captures.needed

SURE = (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
LEAST: dict[str, tuple[float, ...]] = {
    "all at once": (0.96, 0.98, 1.0, 1.0, 1.0, 0.84),
    "other ids": (0.96, 0.98, 1.0, 1.0, 1.0, 0.84),
    "no user agent, all at once": (0.89, 0.94, 1.0, 1.0, 0.90, 0.84),
    "no id headers": (0.98, 0.98, 1.0, 1.0, 1.0, 1.0),
    "no ids at all": (0.94, 0.95, 1.0, 1.0, 0.85, 1.0),
    "no ids at all, all at once": (0.87, 0.92, 1.0, 1.0, 0.85, 0.84),
    "no ids, no user agent, all at once": (0.83, 0.93, 1.0, 1.0, 0.66, 0.84),
    "other words": (0.98, 0.99, 0.95, 1.0, 1.0, 1.0),
    "other words, no ids, all at once": (0.87, 0.92, 0.95, 1.0, 0.85, 0.84),
    "other tools, no ids": (0.94, 0.95, 1.0, 1.0, 0.85, 1.0),
    "first request missing": (0.95, 0.99, 1.0, 1.0, 1.0, 1.0),
    "first three missing": (0.93, 0.97, 1.0, 1.0, 1.0, 1.0),
    "first three missing, no ids": (0.82, 0.90, 1.0, 1.0, 1.0, 1.0),
    "each twice, at once": (0.86, 0.96, 1.0, 1.0, 0.80, 0.76),
    "each twice, no ids, an hour apart": (0.94, 0.95, 1.0, 1.0, 0.85, 1.0),
    "each twice, no ids, at once": (0.74, 0.89, 1.0, 1.0, 0.66, 0.76),
}
"""Where what is left cannot tell all: sessions, threads, kinds, states, parents, retries. Everything else is wholly right."""
ORDER = ("sessions", "threads", "kinds", "states", "parents", "retries")


@pytest.mark.parametrize("what", capture_changes.CHANGES)
def test_the_figures_under_a_change(what: str) -> None:
    """No figure falls below what has been reached, whatever the captures lose."""
    change, lay = capture_changes.CHANGES[what]
    total = capture_changes.scores(captures.names(), change, lay)["all"]
    figures = total.figures()
    low = {name: figures[name] for name, least in zip(ORDER, LEAST.get(what, SURE), strict=True) if (figures[name] or 0.0) < least}
    assert low == {}, "\n".join(total.wrong)


@pytest.mark.parametrize("what", ["all at once", "each twice, at once", "no user agent, all at once"])
def test_a_known_process_settles_what_looks_alike(what: str) -> None:
    """Equal requests of different processes at the same time are told apart when the processes are known."""
    change, lay = capture_changes.CHANGES[what]
    total = capture_changes.scores(captures.names(), change, lay, processes=True)["all"]
    assert set(total.figures().values()) == {1.0}, "\n".join(total.wrong)


def test_the_changes_change_something() -> None:
    """A change that does nothing would prove nothing."""
    samples = [capture_changes.capture(name) for name in ("claude-code/sub_nested", "codex/07_http_cancel_sigint", "gemini/08_fixed_model")]
    for what, (change, _) in capture_changes.CHANGES.items():
        if change is not capture_changes.unchanged:
            assert any(change(sample) != sample for sample in samples), what
