"""Runs the user's command as if we were not there: same terminal, same process group, same signals, its exit code.

It knows neither what the command is nor what is recorded.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from storage.errors import PlayheadError
from tracer.companion import Companion

_MEANT_FOR_IT = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Sent to us, meant for the command. What the whole group had it has had already, and must not have twice: agents count Ctrl-C."""

_SETTLE_S = 0.05
"""A command that stopped is looked at again after so long before we stop too: `fg` may have continued it meanwhile."""


class NotStartedError(PlayheadError):
    """A command that could not be started; the exit code is a shell's: 127 there is none, 126 it cannot be run."""

    def __init__(self, message: str, exit_code: int, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


def check(program: str, path: str | None) -> None:
    """Raises NotStartedError for a program that is not there, before anything is set up for it. `path`: where it will be looked for."""
    if _found(program, path) is None:
        raise NotStartedError(f"there is no command {program}", 127, hint="give a program on your PATH behind --")


class Child:
    """A command that runs. Signals are ours from before it starts: what comes meanwhile is passed on."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._companion = Companion()
        self._passing: set[asyncio.Task[None]] = set()
        self._listen()
        try:
            self._process = subprocess.Popen(list(command), env=dict(environment))
        except OSError as wrong:
            self._companion.close()
            raise _not_started(command[0], wrong, environment.get("PATH")) from None

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def ended(self) -> int:
        """Waits for its end and gives the exit code as a shell does: 128 + n for a command that signal n ended.

        From then on a first Ctrl-C is taken for one to the command, which has just ended; a second ends us at once.
        """
        try:
            code = await self._loop.run_in_executor(None, self._wait)
        finally:
            self._let_go()
            self._companion.close()
        return 128 - code if code < 0 else code

    # ---- signals -----------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Takes the signals that are not ignored; what is (nohup, a script's background job) stays so for the command too."""
        for number in _MEANT_FOR_IT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._had, number)
        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            self._loop.add_signal_handler(signal.SIGTSTP, self._had, signal.SIGTSTP)
        self._loop.add_signal_handler(signal.SIGCONT, self._send, signal.SIGCONT)  # twice does no harm

    def _had(self, number: signal.Signals) -> None:
        task = self._loop.create_task(self._pass_on(number))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _pass_on(self, number: signal.Signals) -> None:
        if not await self._companion.had_it_too():
            self._send(number)
        if number is signal.SIGTSTP:
            self._stop()

    def _send(self, number: signal.Signals) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def _stop(self) -> None:
        """Stops us as the terminal would, until `fg`: the shell sees its job stopped. Where no shell could continue us nothing happens."""
        self._loop.remove_signal_handler(signal.SIGTSTP)  # the default again
        os.kill(os.getpid(), signal.SIGTSTP)
        self._loop.add_signal_handler(signal.SIGTSTP, self._had, signal.SIGTSTP)

    def _let_go(self) -> None:
        """The command is gone: what is left to do is ours, and short."""
        for number in (*_MEANT_FOR_IT, signal.SIGTSTP, signal.SIGCONT):
            self._loop.remove_signal_handler(number)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            asked: list[int] = []
            self._loop.add_signal_handler(signal.SIGINT, lambda: os._exit(128 + signal.SIGINT) if asked else asked.append(1))

    # ---- its end -----------------------------------------------------------------------------------------------------

    def _wait(self) -> int:
        """In a thread. A command that stops itself (agents do so at Ctrl-Z) stops us too, or its shell would never show its prompt."""
        while True:
            _, status = os.waitpid(self.pid, os.WUNTRACED)
            ended = self._stopped() if os.WIFSTOPPED(status) else status
            if ended is not None:
                self._process.returncode = os.waitstatus_to_exitcode(ended)
                return self._process.returncode

    def _stopped(self) -> int | None:
        """The command stopped: the status of its end when that comes at once, else None, and we are stopped unless it goes on again."""
        for _ in range(2):
            time.sleep(_SETTLE_S)
            number, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if number:
                return None if os.WIFCONTINUED(status) or os.WIFSTOPPED(status) else status
        if _in_the_foreground():
            self._loop.call_soon_threadsafe(self._stop)
        return None


def _in_the_foreground() -> bool:
    """Whether a terminal's keys are ours."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _found(program: str, path: str | None) -> str | None:
    """Where a program is, whether or not it can be run."""
    if os.sep in program:
        return program if os.path.lexists(program) else None
    return shutil.which(program, os.F_OK, path)


def _not_started(program: str, wrong: OSError, path: str | None) -> NotStartedError:
    found = _found(program, path)
    if isinstance(wrong, FileNotFoundError) and found is None:
        return NotStartedError(f"there is no command {program}", 127, hint="give a program on your PATH behind --")
    if isinstance(wrong, FileNotFoundError):
        return NotStartedError(f"cannot start {program}: its interpreter is not there", 126, hint=f"see the first line of {found}")
    reason = (wrong.strerror or str(wrong)).lower()
    return NotStartedError(f"cannot start {program}: {reason}", 126, hint="look whether it is a program you may run")
