"""`run` in a real terminal, under a shell with job control: whose keys are whose, stop and `fg`, sizes, and what is said."""

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import LIMIT_S, PLAYHEAD, environment, playhead
from faulty.steps import chunk, head, until_gone, whole
from faulty.upstream import serving

PATH = "/v1/messages"
COUNTS = """
import os, signal, sys, time
got = []
for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1"):
    signal.signal(getattr(signal, name), lambda number, _: got.append(signal.Signals(number).name))
print("up", os.getpid(), os.getppid(), flush=True)
end = time.monotonic() + 60
while not got and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.6)
print("got", *got, flush=True)
sys.exit(9)
"""
"""Says which signals it had, some time after the first."""

STREAMS = """
import os, signal, socket, sys
from urllib.parse import urlsplit
place = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
client = socket.create_connection((place.hostname, place.port))
client.sendall(b"POST /v1/messages HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
while b"data: 1" not in client.recv(65536):
    pass
print("streaming", flush=True)
signal.pause()
"""


class Terminal:
    """An interactive shell in a terminal of its own."""

    def __init__(self, master: int) -> None:
        self.master, self.seen = master, ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, pattern: str) -> "re.Match[str]":
        """Reads until the pattern has been printed; what was read before it is not looked at again."""
        deadline = time.monotonic() + LIMIT_S
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < deadline, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        self.seen = self.seen[found.end() :]
        return found

    def run(self, trace: Path, upstream: str, program: str) -> None:
        """Types `playhead run` of a Python program, with its exit code behind it."""
        file = trace.with_suffix(".py")
        file.write_text(program)
        command = [*PLAYHEAD, "run", "--trace", str(trace), "--upstream", upstream, "--", sys.executable, str(file)]
        self.type(f"{shlex.join(command)}; echo code=$?\n")


@contextmanager
def terminal() -> Iterator[Terminal]:
    """With job control, and a prompt that can be waited for."""
    pid, master = pty.fork()
    if pid == 0:
        os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {**environment(), "PS1": "ready> ", "TERM": "dumb", "HISTFILE": ""})
    there = Terminal(master)
    try:
        there.until("ready> ")
        yield there
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(master)


pytestmark = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")
NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_a_key_reaches_the_command_once(tmp_path: Path, key: str, name: str) -> None:
    """The terminal sends it to both of us; it is the command's."""
    with terminal() as shell:
        shell.run(tmp_path / "a.trace", NOWHERE, COUNTS)
        shell.until(r"up \d+")
        shell.type(key)
        assert shell.until(r"got ([^\r]*)\r")[1] == name
        shell.until("NOTHING WAS RECORDED")
        assert shell.until(r"code=(\d+)")[1] == "9"


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_sent_to_us_alone_is_passed_on_once(tmp_path: Path, name: str) -> None:
    """As `kill PID` sends it."""
    with terminal() as shell:
        shell.run(tmp_path / "a.trace", NOWHERE, COUNTS)
        parent = int(shell.until(r"up \d+ (\d+)")[1])
        os.kill(parent, getattr(signal, name))
        assert shell.until(r"got ([^\r]*)\r")[1] == name
        assert shell.until(r"code=(\d+)")[1] == "9"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_sent_to_the_job_comes_once(tmp_path: Path, name: str) -> None:
    """As `kill %1` and supervisors send it: the command has had it, and is not told again."""
    with terminal() as shell:
        shell.run(tmp_path / "a.trace", NOWHERE, COUNTS)
        parent = int(shell.until(r"up \d+ (\d+)")[1])
        os.killpg(os.getpgid(parent), getattr(signal, name))
        assert shell.until(r"got ([^\r]*)\r")[1] == name


def test_ctrl_c_in_mid_stream_is_the_clients(tmp_path: Path) -> None:
    """What had come is kept as client_aborted, the exit code is a shell's, and the trace is whole."""
    trace = tmp_path / "a.trace"
    with serving({PATH: [head(), chunk(b"data: 1\n\n"), until_gone]}) as upstream, terminal() as shell:
        shell.run(trace, upstream.url, STREAMS)
        shell.until("streaming")
        shell.type("\x03")
        shell.until(r"recorded 1 exchange \(1 client_aborted\)")
        assert shell.until(r"code=(\d+)")[1] == "130"
    (row,) = playhead("exchanges", "--trace", trace, "--json").document
    assert (row["state"], row["abort_by"], row["response_bytes"]) == ("client_aborted", "client", 9)
    assert playhead("verify", "--trace", trace).code == 0


STOPS_ITSELF = "import os, signal; print('up', flush=True); os.kill(os.getpid(), signal.SIGSTOP); print('on again', flush=True)"
WAITS = "import sys; print('up', flush=True); print('read', sys.stdin.readline(), flush=True)"


def test_ctrl_z_stops_the_job_and_fg_continues_it(tmp_path: Path) -> None:
    """Twice, and then what is typed is the command's."""
    with terminal() as shell:
        shell.run(tmp_path / "a.trace", NOWHERE, WAITS)
        shell.until("up")
        for _ in range(2):
            shell.type("\x1a")
            shell.until("Stopped")
            shell.until("ready> ")
            shell.type("fg\n")
            shell.until("fg\r\n")
            time.sleep(0.3)
        shell.type("some words\n")
        shell.until("read some words")
        shell.until("NOTHING WAS RECORDED")


def test_a_command_that_stops_itself_gives_the_shell_its_prompt(tmp_path: Path) -> None:
    """Agents that read keys raw do so at Ctrl-Z."""
    with terminal() as shell:
        shell.run(tmp_path / "a.trace", NOWHERE, STOPS_ITSELF)
        shell.until("up")
        shell.until("Stopped")
        shell.until("ready> ")
        shell.type("fg\n")
        shell.until("on again")
        shell.until("NOTHING WAS RECORDED")


def test_the_terminal_is_the_commands(tmp_path: Path) -> None:
    """All three streams are it, its size and a change of its size are seen."""
    program = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
print("tty", [os.isatty(number) for number in range(3)], os.get_terminal_size(0).columns, flush=True)
signal.sigwait({signal.SIGWINCH})
print("now", os.get_terminal_size(0).columns, flush=True)
"""
    with terminal() as shell:
        fcntl.ioctl(shell.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 123, 0, 0))
        shell.run(tmp_path / "a.trace", NOWHERE, program)
        shell.until(r"tty \[True, True, True\] 123")
        fcntl.ioctl(shell.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 77, 0, 0))
        shell.until("now 77")


def test_signals_that_are_ignored_stay_ignored(tmp_path: Path) -> None:
    """Of `nohup`, and of a script's background jobs: the command inherits it as from the shell."""
    program = "import signal; print([signal.getsignal(n) is signal.SIG_IGN for n in (signal.SIGHUP, signal.SIGINT)], flush=True)"
    with terminal() as shell:
        shell.type("trap '' HUP INT\n")
        shell.run(tmp_path / "a.trace", NOWHERE, program)
        shell.until(r"\[True, True\]")


def test_nothing_is_left_running(tmp_path: Path) -> None:
    """Neither after its end nor after its own violent death."""
    with terminal() as shell:
        shell.run(tmp_path / "a.trace", NOWHERE, COUNTS)
        parent = int(shell.until(r"up \d+ (\d+)")[1])
        group = os.getpgid(parent)
        os.kill(parent, signal.SIGKILL)
        shell.until("Killed|code=137")
        deadline = time.monotonic() + LIMIT_S
        while (left := _of_group(group)) and any(name == "cat" for name in left):
            assert time.monotonic() < deadline, left
            time.sleep(0.02)
        assert left  # the command itself goes on
        os.killpg(group, signal.SIGKILL)


def _of_group(group: int) -> list[str]:
    names = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "stat").read_text().rpartition(")") if entry.name.isdigit() else None
        except OSError:
            continue
        if words and words[2].split()[2] == str(group) and words[2].split()[0] != "Z":
            names.append(words[0].partition("(")[2])
    return names


def test_quiet_says_nothing(tmp_path: Path) -> None:
    """Neither what was set nor what was recorded."""
    with serving({PATH: [whole(b"{}")]}) as upstream:
        command = ("run", "--quiet", "--upstream", upstream.url, "--trace", tmp_path / "a.trace", "--", sys.executable, "-c", "print(1)")
        ended = playhead(*command)
    assert (ended.code, ended.out, ended.err) == (0, "1\n", "")
    assert json.loads(playhead("exchanges", "--trace", tmp_path / "a.trace", "--json").out) == []
