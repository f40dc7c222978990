"""Tells a signal that was sent to the whole process group (Ctrl-C in a terminal, `kill %1`) from one that was sent to us alone.

A signal does not say which; but of a group's signal a companion, a process of our group that does nothing, dies or stops too. It ends with
us however we end: it waits for the end of a pipe.
"""

import asyncio
import os
import subprocess
from contextlib import suppress

_LOOKS, _BETWEEN_S = 40, 0.005
"""A group's signals are sent at one moment: one that was not seen to arrive at the companion after so long was not sent to it."""


class Companion:
    """A process of our group, started anew when a signal has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    async def had_it_too(self) -> bool:
        """Whether the signal that we just had reached the companion. Where it could not be started: that is taken for so."""
        for _ in range(_LOOKS):
            if self._has_changed():
                return True
            await asyncio.sleep(_BETWEEN_S)
        return False

    def _has_changed(self) -> bool:
        if self._process is None:
            return True
        number, status = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED)
        if number and not os.WIFSTOPPED(status):
            self._replace(status)
        return number != 0

    def close(self) -> None:
        """Ends it. Whoever still waits is told that the signal had come: there is nobody left to pass it on to."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._close_pipe()
        self._process = None

    def _start(self) -> None:
        with suppress(OSError):
            self._process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _replace(self, status: int) -> None:
        assert self._process
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._close_pipe()
        self._process = None
        self._start()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
