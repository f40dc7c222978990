"""Runs the user's command as if we were not there: same terminal, same signals, its exit code.

It knows neither what the command is nor what is recorded.
"""

import asyncio
import signal
import subprocess
from collections.abc import Mapping, Sequence

from storage.errors import PlayheadError

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Sent to us alone, meant for the command. Ctrl-C and Ctrl-\\ reach it from the terminal already: we only must not die of them."""
_THE_TERMINALS = (signal.SIGINT, signal.SIGQUIT)


class NotStartedError(PlayheadError):
    """A command that could not be started; the exit code is a shell's: 127 there is none, 126 it cannot be run."""

    def __init__(self, message: str, exit_code: int, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class Child:
    """A command that runs."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        try:
            self._process = subprocess.Popen(list(command), env=dict(environment))
        except FileNotFoundError:
            raise NotStartedError(f"there is no command {command[0]}", 127, hint="give a program on your PATH behind --") from None
        except OSError as wrong:
            reason = (wrong.strerror or str(wrong)).lower()
            raise NotStartedError(f"cannot start {command[0]}: {reason}", 126, hint="look whether it is a program you may run") from None

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def ended(self) -> int:
        """Waits for its end and gives the exit code as a shell does: 128 + n for a command that signal n ended."""
        loop = asyncio.get_running_loop()
        for number in _PASSED_ON:
            loop.add_signal_handler(number, self._process.send_signal, number)
        for number in _THE_TERMINALS:
            loop.add_signal_handler(number, lambda: None)
        try:
            code = await loop.run_in_executor(None, self._process.wait)
        finally:
            for number in (*_PASSED_ON, *_THE_TERMINALS):
                loop.remove_signal_handler(number)
        return 128 - code if code < 0 else code
