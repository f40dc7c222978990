"""Keeping a trace small while it is recorded into: `playhead gc`, now and then, as a child of its own.

A child, not a thread's work: what it reads and deletes would take the interpreter from the proxy's loop. It gives way to everything else.
"""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from cli import quantities
from cli.children import PLAYHEAD

FIRST_S, LOOK_S = 2.0, 10.0
"""When it is looked after for the first time, and how often then whether it has outgrown its size."""
AGE_EVERY_S = 600.0
_REST, _LEAST_REST_S, _MOST_REST_S = 20, 60.0, 1800.0
"""Between two rounds: so many times as long as the last took, but no less and no more than that."""
_NICENESS = 10
_LEAVE = 0.95
"""Of the size allowed, so that it is not outgrown again at once."""
_POLL_S = 0.2

_keep_for = click.option("--keep-for", type=quantities.AGE, metavar="AGE", help="Delete what is older, while recording (12h, 30d).")
_keep_within = click.option(
    "--keep-within", type=quantities.SIZE, metavar="SIZE", help="Delete the oldest sessions when the trace is larger (500MB, 10GB)."
)


def options[Command: Callable[..., Any]](command: Command) -> Command:
    """The two options."""
    return _keep_for(_keep_within(command))


@contextmanager
def kept_small(location: str, age_ns: int | None, size: int | None, *, tell: Callable[[str], None]) -> Iterator[None]:
    """Sees to it while what is inside goes on. `tell`: what was deleted, what went wrong; from a thread."""
    if age_ns is None and size is None:
        yield
        return
    keeper = _Keeper(Path(location).expanduser(), age_ns, size, tell)
    thread = threading.Thread(target=keeper.work, name="retention", daemon=True)
    thread.start()
    try:
        yield
    finally:
        keeper.stop.set()
        thread.join(30)


class _Keeper:
    """Decides when it is time, and has it done."""

    def __init__(self, path: Path, age_ns: int | None, size: int | None, tell: Callable[[str], None]) -> None:
        self._path, self._age_ns, self._size, self._tell = path, age_ns, size, tell
        self._next_by_age_s = 0.0
        self._not_before_s = 0.0
        self.stop = threading.Event()

    def work(self) -> None:
        """Until it is stopped."""
        wait_s = FIRST_S
        while not self.stop.wait(wait_s):
            wait_s = LOOK_S
            now_s = time.monotonic()
            if now_s >= self._not_before_s and (self._is_old(now_s) or self._is_large()):
                self._round()
                took_s = time.monotonic() - now_s
                self._not_before_s = now_s + took_s + min(_MOST_REST_S, max(_LEAST_REST_S, _REST * took_s))
                self._next_by_age_s = now_s + AGE_EVERY_S

    def _is_old(self, now_s: float) -> bool:
        return self._age_ns is not None and now_s >= self._next_by_age_s

    def _is_large(self) -> bool:
        with suppress(OSError):
            return self._size is not None and self._path.stat().st_size > self._size
        return False

    def _round(self) -> None:
        """One `playhead gc`; its end is waited for, or it is ended with us: what it has not deleted yet is whole."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as talk:
            child = subprocess.Popen(
                [*PLAYHEAD, *self._arguments()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=talk, start_new_session=True
            )
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, child.pid, _NICENESS)
            while child.poll() is None:
                if self.stop.wait(_POLL_S):
                    child.terminate()
                    child.wait()
                    return
            talk.seek(0)
            self._say(child.returncode, talk.read().splitlines())

    def _arguments(self) -> Sequence[str]:
        limits = [] if self._age_ns is None else ["--older-than", f"{self._age_ns / 1e9:f}s"]
        limits += [] if self._size is None else ["--max-size", f"{int(self._size * _LEAVE)}b"]
        return ["gc", "--trace", str(self._path), *limits]

    def _say(self, code: int, lines: Sequence[str]) -> None:
        if code:
            errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")] or [f"exit code {code}"]
            self._tell(f"the trace could not be kept small: {errors[0]}")
        elif lines and not lines[0].startswith("deleted 0 sessions, 0 runs, 0 exchanges"):
            self._tell(f"{lines[0]}: {lines[-1] if '->' in lines[-1] else lines[2]}")
