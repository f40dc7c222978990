"""How well sessions, threads, kinds, states, parents and retries of real agents' traffic are recognised, agent by agent.

    python benchmarks/identity_scores.py [--with-processes]

Reads the captures beside this project (none: says so and ends). Pairwise F1 of sessions and threads over all pairs of an agent's calls in
one trace that also holds other agents' traffic, F1 of retries, shares right of the rest; `-` where there is nothing to recognise.
"""

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import capture_scores
import captures

COLUMNS = ("sessions", "threads", "kinds", "states", "parents", "retries")


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


def main() -> None:
    """Prints the table, then whatever is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--with-processes", action="store_true", help="as if the client's process were known")
    asked = parser.parse_args()
    if not captures.FOLDER.is_dir():
        raise SystemExit("the captures of real agents are not beside this project")
    found = scores(with_processes=asked.with_processes)
    print("| agent | calls | " + " | ".join(COLUMNS) + " |")
    print("|---|---|" + "---|" * len(COLUMNS))
    for agent in [*sorted(found.keys() - {"all"}), "all"]:
        figures = found[agent].figures()
        cells = ["-" if (figure := figures[column]) is None else f"{figure:.3f}" for column in COLUMNS]
        print(f"| {agent} | {found[agent].requests} | " + " | ".join(cells) + " |")
    for text in found["all"].wrong:
        print(text)


if __name__ == "__main__":
    main()
