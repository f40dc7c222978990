"""How well sessions, threads, kinds, states, parents and retries of real agents' traffic are recognised, agent by agent.

    python benchmarks/identity.py [--with-processes] [--changes]

Reads the captures beside this project (none: says so and ends). Pairwise F1 of sessions and threads over all pairs of an agent's calls in
one trace that also holds other agents' traffic, F1 of retries, shares right of the rest (`calls`: the very tool call that started a
sub-agent); `-` where there is nothing to recognise. With --changes: the same over captures that were changed in ways that leave their
answer key true (ids renamed or gone, other words, sessions side by side, the beginning missing), without and with known client processes.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import capture_changes
import capture_scores
import captures

COLUMNS = ("sessions", "threads", "kinds", "states", "parents", "calls", "retries")


def scores(*, with_processes: bool) -> dict[str, capture_scores.Score]:
    """A score an agent, and one for all."""
    found: dict[str, capture_scores.Score] = defaultdict(capture_scores.Score)
    truth = captures.truth()
    for names in capture_scores.rounds(truth):
        with tempfile.TemporaryDirectory() as folder:
            judged = capture_scores.read(Path(folder), names, with_processes=with_processes)
        for agent in sorted({name.split("/")[0] for name in names}):
            capture_scores.score(judged, lambda name, agent=agent: name.split("/")[0] == agent, found[agent])
        capture_scores.score(judged, lambda _: True, found["all"])
    return found


def by_agent(*, with_processes: bool) -> None:
    """Prints the table, then whatever is wrong."""
    found = scores(with_processes=with_processes)
    _head("agent", "calls read", *COLUMNS)
    for agent in [*sorted(found.keys() - {"all"}), "all"]:
        print(f"| {agent} | {found[agent].requests} | " + " | ".join(cells(found[agent])) + " |")
    for text in found["all"].wrong:
        print(text)


def by_change() -> None:
    """A row a change: figures, and behind each the one with known processes where it is another."""
    _head("change", *COLUMNS)
    for what, (change, lay) in capture_changes.CHANGES.items():
        plain, known = (
            cells(capture_changes.scores(captures.names(), change, lay, processes=processes)["all"]) for processes in (False, True)
        )
        figures = [a if a == b else f"{a} ({b})" for a, b in zip(plain, known, strict=True)]
        print(f"| {what} | " + " | ".join(figures) + " |")


def cells(score: capture_scores.Score) -> list[str]:
    """The figures of a row."""
    figures = score.figures()
    return ["-" if (figure := figures[column]) is None else f"{figure:.3f}" for column in COLUMNS]


def _head(*titles: str) -> None:
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))


def main() -> None:
    """One of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with-processes", action="store_true", help="as if the client's process were known")
    parser.add_argument("--changes", action="store_true", help="over changed captures")
    asked = parser.parse_args()
    if not captures.FOLDER.is_dir():
        raise SystemExit("the captures of real agents are not beside this project")
    if asked.changes:
        by_change()
    else:
        by_agent(with_processes=asked.with_processes)


if __name__ == "__main__":
    main()
