"""Commands as children: ready, failed, stubborn, and never left behind."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from cli import children
from storage.errors import PlayheadError


def program(text: str) -> tuple[str, ...]:
    """A Python program given as text."""
    return (sys.executable, "-c", text)


def test_what_a_server_announces_is_read_and_it_is_ended() -> None:
    """The first line is a JSON document; leaving the stack ends the server and waits for it."""
    text = "import os, sys, time; print('{\"pid\": %d}' % os.getpid(), flush=True); time.sleep(60)"
    with ExitStack() as stack:
        pid = children.start(stack, program=program(text)).announced()["pid"]
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_children_end_also_when_something_fails_meanwhile() -> None:
    """An exception in the body leaves no child, even one that does not listen to SIGTERM."""
    text = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"
    pid = 0

    def failing() -> None:
        nonlocal pid
        with ExitStack() as stack:
            pid = children.start(stack, program=program(text)).announced()
            raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children, "END_LIMIT_S", 0.3)
        with pytest.raises(ZeroDivisionError):
            failing()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_does_not_start_says_why() -> None:
    """The `error:` line it wrote is passed on in ours."""
    text = "import sys; sys.exit('talk\\nerror: the port is in use\\nhint: take another')"
    with ExitStack() as stack, pytest.raises(PlayheadError, match="did not start: the port is in use"):
        children.start(stack, program=program(text)).announced()


def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    """After the limit the error says so."""
    with ExitStack() as stack, pytest.raises(PlayheadError, match="was not ready within 0 s"):
        children.start(stack, program=program("import time; time.sleep(60)")).announced(0.2)


def test_a_commands_output_is_its_result(tmp_path: Path) -> None:
    """Called by its own name, this program answers; where it fails, the last thing it said is told."""
    with ExitStack() as stack:
        assert children.start(stack, "--version").result().startswith("playhead ")
        with pytest.raises(PlayheadError, match="`playhead runs` ended with exit code 1: "):
            children.start(stack, "runs", "--trace", str(tmp_path / "absent.trace")).result()
