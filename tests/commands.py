"""The real command in a process of its own, for tests: run to its end, or started and spoken to."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

PLAYHEAD = (sys.executable, "-P", "-m", "cli.main")
LIMIT_S = 60


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its stdout as JSON."""
        return json.loads(self.out)

    def tells(self, *words: str) -> bool:
        """Whether it ended with one `error:` line, one `hint:` line and no traceback; and said all these words."""
        lines = self.err.splitlines()
        one_each = [sum(line.startswith(start) for line in lines) for start in ("error: ", "hint: ")] == [1, 1]
        return one_each and "Traceback" not in self.err and all(word in self.err for word in words)


def environment(**more: str) -> dict[str, str]:
    """Ours, without the user's Playhead settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PLAYHEAD_")}
    return {**kept, "COLUMNS": "80", "NO_COLOR": "1", **more}


def playhead(*arguments: object, cwd: object = None, **variables: str) -> Ended:
    """Runs a command to its end."""
    command = [*PLAYHEAD, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment(**variables), cwd=cwd, check=False)  # type: ignore[call-overload]
    return Ended(done.returncode, done.stdout, done.stderr)


@contextmanager
def serving(*arguments: object, **variables: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server command (`record`, `simulate`) while it serves: the process, and the URL it announced."""
    command = [*PLAYHEAD, *map(str, arguments), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables))
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=LIMIT_S)[1]
        yield process, json.loads(line)["url"]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=LIMIT_S)
