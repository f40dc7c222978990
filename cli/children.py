"""Other `playhead` commands as children of this one: started, waited for, and never left behind. It knows no engine."""

import json
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

from storage.errors import PlayheadError

READY_LIMIT_S = 30.0
END_LIMIT_S = 10.0
PLAYHEAD = (sys.executable, "-P", "-m", "cli.main")
"""This program, by this interpreter; -P: a folder named `cli` where the user stands is not taken for ours."""


def start(stack: ExitStack, *arguments: str, program: tuple[str, ...] = PLAYHEAD) -> "Child":
    """Starts a command and does not wait for it; it is ended when `stack` is left. What it says on stderr is kept for when it fails."""
    talk = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace"))  # noqa: SIM115 - the stack closes it
    process = subprocess.Popen([*program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=talk, text=True)
    child = Child(process, talk, f"playhead {arguments[0]}" if program is PLAYHEAD else Path(program[-1]).name)
    stack.callback(child.end)
    return child


class Child:
    """One command that runs."""

    def __init__(self, process: "subprocess.Popen[str]", talk: TextIO, name: str) -> None:
        self._process, self._talk, self._name = process, talk, name

    def announced(self, limit_s: float = READY_LIMIT_S) -> Any:
        """The JSON document on its first line: what a server says when it is ready. Raises PlayheadError when it does not come."""
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(limit_s):
                raise self.failure(f"was not ready within {limit_s:.0f} s")
        line = stdout.readline()
        if not line:
            raise self.failure("did not start")
        return json.loads(line)

    def result(self) -> str:
        """Waits for its end and gives what it printed. Raises PlayheadError when it failed."""
        printed, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise self.failure(f"ended with exit code {self._process.returncode}")
        return printed or ""

    def end(self) -> None:
        """Asks it to end, insists after a while, and waits."""
        deadline = time.monotonic() + END_LIMIT_S
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(deadline - time.monotonic())
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            if self._process.stdout is not None:
                self._process.stdout.close()

    def failure(self, what: str) -> PlayheadError:
        """An error that says which command, what, and the last thing it said."""
        self._talk.seek(0)
        said = [line.strip() for line in self._talk.read().splitlines() if line.strip()]
        told = [line for line in said if line.startswith("error:")] or said
        words = f": {told[-1].removeprefix('error:').strip()}" if told else ""
        return PlayheadError(f"`{self._name}` {what}{words}", hint="run it by itself to see more")
