"""`record` and `run` through the real command: what they print, what they refuse, whose signals and exit codes they pass on."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import LIMIT_S, PLAYHEAD, environment, playhead, serving
from faulty.steps import chunk, head, last, until_gone, whole
from faulty.upstream import serving as upstream_of
from recorded import ask, body_of, connect, request

PATH = "/v1/messages"
CLIENT = """
import json, os, sys, urllib.request
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
print(urllib.request.urlopen(urllib.request.Request(url, b'{"model":"m"}')).read().decode())
print(sys.argv[1:], os.environ["OPENAI_BASE_URL"], file=sys.stderr)
sys.exit(7)
"""

UP = "import time; print('up', flush=True); time.sleep(60)"


def started(*arguments: object) -> "subprocess.Popen[str]":
    """A command that runs, in a group of its own."""
    command = [*PLAYHEAD, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **pipes, env=environment(), start_new_session=True)  # type: ignore[call-overload, no-any-return]


def running(trace: Path, program: str) -> "subprocess.Popen[str]":
    """`playhead run` of a Python program."""
    return started("run", "--trace", trace, "--upstream", "http://127.0.0.1:1", "--", sys.executable, "-c", program)


def test_record_prints_a_line_a_listener(tmp_path: Path) -> None:
    """With --json: what it listens on, for whom, into what trace, as which process; SIGTERM ends it with 0."""
    trace = tmp_path / "a.trace"
    command = [
        *PLAYHEAD,
        "record",
        "--upstream",
        "http://127.0.0.1:1",
        "--upstream",
        "http://127.0.0.1:2/v1",
        "--trace",
        str(trace),
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    assert process.stdout
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=LIMIT_S)
    assert [line["upstream"] for line in lines] == ["http://127.0.0.1:1", "http://127.0.0.1:2/v1"]
    assert all(set(line) == {"event", "url", "upstream", "trace", "pid"} for line in lines)
    assert {line["event"] for line in lines} == {"listening"}
    assert {line["pid"] for line in lines} == {process.pid}
    assert {line["trace"] for line in lines} == {str(trace)}
    assert (process.returncode, out, err) == (0, "", "")
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600


def test_record_tells_people_what_to_paste(tmp_path: Path) -> None:
    """Without --json the exports stand on stdout, the talk on stderr."""
    process = started("record", "--upstream", "http://127.0.0.1:1", "--trace", tmp_path / "a.trace")
    assert process.stdout
    names = [process.stdout.readline().partition("=")[0] for _ in range(4)]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert names == ["export ANTHROPIC_BASE_URL", "export OPENAI_BASE_URL", "export OPENAI_API_BASE", "export GOOGLE_GEMINI_BASE_URL"]
    assert "->  http://127.0.0.1:1" in err
    assert process.returncode == 0


def test_record_keeps_what_passed_and_serves_from_where_it_was_told(tmp_path: Path) -> None:
    """A whole answer is complete and its bytes come back exactly."""
    trace = tmp_path / "a.trace"
    answer = b'{"id":"msg_1","type":"message","content":[],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}'
    with upstream_of({PATH: [whole(answer)]}) as server, serving("record", "--upstream", server.url, "--trace", trace) as (process, url):
        assert body_of(ask(url, PATH, b'{"model":"m","messages":[]}')) == answer
        process.terminate()
        process.wait(LIMIT_S)
    (row,) = playhead("exchanges", "--trace", trace, "--json").document
    assert (row["state"], row["status"], row["dialect"], row["url"]) == ("complete", 200, "anthropic_messages", server.url + PATH)
    assert playhead("show", row["id"], "--raw", "response", "--trace", trace).out.encode() == answer


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "0.0.0.0:0"], ["0.0.0.0", "--allow-remote"]),
        (["--listen", "nowhere"], ["nowhere", "HOST:PORT"]),
        (["--upstream", "ftp://x"], ["ftp://x"]),
        (["--listen", "203.0.113.9:0", "--allow-remote"], ["cannot listen on 203.0.113.9"]),
        (["--listen", "127.0.0.1:65535", "--upstream", "http://a", "--upstream", "http://b"], ["65536", "65534 or lower"]),
    ],
)
def test_record_refuses_bad_addresses(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    """In one line, with a hint; exit 2 where it is no address at all, 1 where it is one that cannot be had."""
    ended = playhead("record", *arguments, "--trace", tmp_path / "a.trace")
    assert ended.code == (2 if words[0] in ("nowhere", "ftp://x") else 1)
    assert ended.tells(*words), ended.err


@pytest.mark.parametrize("content", [None, "no certificates"])
def test_certificates_that_cannot_be_used_are_refused(tmp_path: Path, content: str | None) -> None:
    """At the start, and not at the first request: a file that is not there, one that holds none."""
    file = tmp_path / "ca.pem"
    if content:
        file.write_text(content)
    ended = playhead("record", "--listen", "127.0.0.1:0", "--trace", tmp_path / "a.trace", SSL_CERT_FILE=str(file))
    assert ended.code == 1
    assert ended.tells("SSL_CERT_FILE", str(file)), ended.err
    assert len(ended.err.splitlines()) == 2


def test_a_file_in_a_folders_place_is_told_as_that(tmp_path: Path) -> None:
    """Not as a file that exists."""
    (tmp_path / "file").touch()
    ended = playhead("record", "--listen", "127.0.0.1:0", "--trace", tmp_path / "file" / "x.trace")
    assert ended.code == 1
    assert ended.tells("ot a directory"), ended.err


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    """The first waits for streams in flight, the second does not; what had come is kept as interrupted."""
    trace = tmp_path / "a.trace"
    endless = {PATH: [head(), chunk(b"data: 1\n\n"), until_gone]}
    with (
        upstream_of(endless) as server,
        serving("record", "--upstream", server.url, "--trace", trace) as (process, url),
        connect(url) as client,
    ):
        client.sendall(request(PATH, b"{}"))
        while b"data: 1" not in client.recv(65536):
            pass
        time.sleep(1.0)  # the journal is written twice a second
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 130
    with serving("record", "--upstream", server.url, "--trace", trace):
        pass
    (row,) = playhead("exchanges", "--trace", trace, "--json").document
    assert (row["state"], row["response_bytes"]) == ("interrupted", 9)


def test_run_records_a_command_and_passes_on_its_exit_code(tmp_path: Path) -> None:
    """Its arguments, its output and its code are its own; what was set is said, and who sent what is known."""
    trace = tmp_path / "a.trace"
    with upstream_of({PATH: [whole(b'{"fine":1}')]}) as server:
        ended = playhead("run", "--upstream", server.url, "--trace", trace, "--", sys.executable, "-c", CLIENT, "--trace", "x", "--json")
    assert (ended.code, ended.out) == (7, '{"fine":1}\n')
    assert "['--trace', 'x', '--json'] http://127.0.0.1:" in ended.err
    assert "playhead: recording" in ended.err
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:" in ended.err
    (row,) = playhead("exchanges", "--trace", trace, "--json").document
    assert (row["state"], row["status"]) == ("complete", 200)


def test_run_says_when_there_is_no_such_command(tmp_path: Path) -> None:
    """Nothing was started; the exit code is a shell's."""
    ended = playhead("run", "--trace", tmp_path / "a.trace", "--upstream", "http://127.0.0.1:1", "--", "no-such-command-anywhere")
    assert ended.code == 127
    assert ended.tells("no command no-such-command-anywhere")
    folder = playhead("run", "--trace", tmp_path / "a.trace", "--upstream", "http://127.0.0.1:1", "--", str(tmp_path))
    assert folder.tells("permission denied")


def test_run_without_a_command_is_wrong_usage() -> None:
    """Exit 2."""
    assert playhead("run").code == 2


@pytest.mark.parametrize(
    ("program", "number", "code"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", None, 137),
        (
            "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); print('up', flush=True); time.sleep(60)",
            signal.SIGTERM,
            5,
        ),
        (UP, signal.SIGTERM, 143),
    ],
)
def test_run_passes_signals_on(tmp_path: Path, program: str, number: int | None, code: int) -> None:
    """A signal to us is one to the command; a command ended by signal n gives 128 + n."""
    command = [
        *PLAYHEAD,
        "run",
        "--trace",
        str(tmp_path / "a.trace"),
        "--upstream",
        "http://127.0.0.1:1",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    if number is not None:
        assert process.stdout
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == code


def test_ctrl_c_belongs_to_the_command(tmp_path: Path) -> None:
    """The terminal sends it to the whole group: the command decides, and is recorded to its end."""
    program = "import signal; signal.signal(signal.SIGINT, lambda *_: (print('asked', flush=True), exit(0))); " + UP
    command = [
        *PLAYHEAD,
        "run",
        "--trace",
        str(tmp_path / "a.trace"),
        "--upstream",
        "http://127.0.0.1:1",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    assert process.stdout
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "asked\n")
    assert "Traceback" not in err


def test_nothing_a_stream_says_is_lost_when_the_command_ends(tmp_path: Path) -> None:
    """The exchange that ends with the command is whole."""
    trace = tmp_path / "a.trace"
    steps = [head(), *(chunk(b"data: %d\n\n" % number) for number in range(200)), last()]
    with upstream_of({PATH: steps}) as server:
        ended = playhead("run", "--upstream", server.url, "--trace", trace, "--", sys.executable, "-c", CLIENT)
    (row,) = playhead("exchanges", "--trace", trace, "--json").document
    assert row["response_bytes"] == len(ended.out.encode()) - 1
