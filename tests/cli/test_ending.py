"""What `run` says at its end: figures where there are any, what to look at next, and loudly that nothing came."""

import os
from pathlib import Path

import pytest
from commands import playhead

from cli.ending import lines, program_of
from storage.outcomes import Outcome


def outcome(**more: object) -> Outcome:
    """A command that asked its model five times."""
    usual = {"exchanges": 5, "states": (("complete", 5),), "calls": 5, "refused": 0, "sessions": (3,)}
    tokens = {"prompt_tokens": 94181, "cached_tokens": 93744, "output_tokens": 136}
    return Outcome(**{**usual, **tokens, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "first", "second"),
    [
        (
            outcome(),
            "recorded 5 exchanges in 1 session with 94,181 prompt tokens (93,744 cached) and 136 output tokens into a.trace",
            "look at it: playhead exchanges s3 --trace a.trace",
        ),
        (
            outcome(states=(("complete", 4), ("client_aborted", 1)), sessions=(1, 2), cached_tokens=None, output_tokens=9),
            "recorded 5 exchanges (4 complete, 1 client_aborted) in 2 sessions with 94,181 prompt tokens and 9 output tokens into a.trace",
            "look at it: playhead sessions --trace a.trace",
        ),
        (
            outcome(exchanges=1, states=(("error", 1),), sessions=(), prompt_tokens=None, cached_tokens=None, output_tokens=None, calls=1),
            "recorded 1 exchange (1 error) into a.trace",
            "look at it: playhead sessions --trace a.trace",
        ),
        (
            outcome(refused=2, sessions=(1,), prompt_tokens=None, output_tokens=None),
            "recorded 5 exchanges (5 complete, 2 answered with an error) in 1 session into a.trace",
            "look at it: playhead exchanges s1 --trace a.trace",
        ),
        (
            outcome(exchanges=2, states=(("complete", 2),), calls=0, sessions=(), prompt_tokens=None, output_tokens=None),
            "recorded 2 exchanges into a.trace; none of it is a call to a model that can be read",
            "see what it is: playhead exchanges --trace a.trace",
        ),
    ],
)
def test_what_was_recorded_is_summed_up(found: Outcome, first: str, second: str) -> None:
    """Missing figures are left out, and what went wrong is named."""
    assert lines(found, "a.trace", program="agent", code=0, is_default=False) == [first, second]


def test_the_usual_trace_need_not_be_named() -> None:
    """The next command finds it by itself."""
    assert lines(outcome(), "a.trace", program="agent", code=0, is_default=True)[1] == "look at it: playhead exchanges s3"


def test_nothing_is_said_loudly() -> None:
    """With what may be the reason."""
    told = lines(outcome(exchanges=0, states=()), "a.trace", program="agent", code=1, is_default=True)
    assert (
        told[0] == "NOTHING WAS RECORDED: agent said nothing to the recorder. It ended with exit code 1: perhaps before it asked anything."
    )
    assert "docs/guide/record.md" in told[1]
    assert "exit code" not in lines(outcome(exchanges=0, states=()), "a.trace", program="agent", code=0, is_default=True)[0]


def test_a_program_is_called_by_its_name() -> None:
    """Printable, whatever it is."""
    assert program_of(("/usr/bin/agent", "x")) == "agent"
    assert "\x1b" not in program_of(("/a/\x1b[31mred",))


def test_what_cannot_be_started_is_told_apart(tmp_path: Path) -> None:
    """No such command (127); no interpreter for it, no program at all (126). Nothing is created for one that is not there."""
    script, text = tmp_path / "script", tmp_path / "text"
    script.write_text("#!/no/such/interpreter\n")
    text.write_bytes(b"\x7fELF\x02no")
    for file in (script, text):
        file.chmod(0o700)
    trace = tmp_path / "a.trace"
    missing = playhead("run", "--trace", trace, "--upstream", "http://127.0.0.1:1", "--", tmp_path / "none")
    assert (missing.code, missing.tells("no command"), trace.exists()) == (127, True, False)
    for file, words in ((script, "its interpreter is not there"), (text, "exec format error")):
        ended = playhead("run", "--trace", trace, "--upstream", "http://127.0.0.1:1", "--", file)
        assert (ended.code, ended.tells(words)) == (126, True), ended.err


def test_a_configuration_in_a_variable_is_not_shown(tmp_path: Path) -> None:
    """It is the user's, and may hold a key; nor is the secret path shown."""
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\necho $OPENCODE_CONFIG_CONTENT\n")
    program.chmod(0o700)
    ended = playhead(
        "run", "--trace", tmp_path / "a.trace", "--upstream", "http://127.0.0.1:1", "--secret-path", "--", program,
        OPENCODE_CONFIG_CONTENT='{"provider": {"anthropic": {"options": {"apiKey": "tiny-key"}}}}', PATH=os.environ["PATH"],
    )  # fmt: skip
    assert "tiny-key" in ended.out
    assert "/k/" in ended.out
    secret = ended.out.partition("/k/")[2].partition("/")[0]
    assert "tiny-key" not in ended.err
    assert secret not in ended.err
    assert "set OPENCODE_CONFIG_CONTENT" in ended.err
