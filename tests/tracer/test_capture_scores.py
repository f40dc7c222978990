"""What the reader makes of real agents' traffic, against its answer key: no figure may fall."""

from pathlib import Path

import capture_scores
import captures
import pytest

pytestmark = captures.needed
LEAST = 0.99


@pytest.mark.parametrize("place", range(capture_scores.ROUNDS))
def test_sessions_threads_kinds_states_parents_and_retries(place: int, tmp_path: Path) -> None:
    """Several agents' captures in one trace, with no client process known."""
    total = capture_scores.Score()
    names = capture_scores.rounds(captures.truth())[place]
    capture_scores.score(capture_scores.read(tmp_path, names), lambda _: True, total)
    assert total.requests > 90
    low = {what: figure for what, figure in total.figures().items() if figure is not None and figure < LEAST}
    assert low == {}, "\n".join(total.wrong)


def test_processes_do_not_mislead(tmp_path: Path) -> None:
    """A session that several processes went on with stays one; equal ones of two processes stay two."""
    total = capture_scores.Score()
    names = [name for name in captures.names() if name.split("/")[0] in ("gemini", "qwen", "aider", "cline", "pi-1.6.0", "copilot")]
    capture_scores.score(capture_scores.read(tmp_path, names, with_processes=True), lambda _: True, total)
    figures = total.figures()
    assert min(figure for figure in figures.values() if figure is not None) >= LEAST, "\n".join(total.wrong)
