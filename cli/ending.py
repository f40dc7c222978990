"""What `run` says when its command has ended: what was recorded and where to go on, or loudly that nothing was. It knows no engine."""

from pathlib import PurePath
from typing import TYPE_CHECKING

from cli import console

if TYPE_CHECKING:
    from storage.outcomes import Outcome


def lines(outcome: "Outcome", location: str, *, program: str, code: int, is_default: bool) -> list[str]:
    """One or two lines. `is_default`: the trace is the one that commands take without being told."""
    if not outcome.exchanges:
        return _nothing(program, code)
    trace = "" if is_default else f" --trace {location}"
    first = f"recorded {_exchanges(outcome)} into {location}"
    if not outcome.calls:
        return [first + "; none of it is a call to a model that can be read", f"see what it is: playhead exchanges{trace}"]
    where = f"exchanges s{outcome.sessions[0]}" if len(outcome.sessions) == 1 else "sessions"
    return [first, f"look at it: playhead {where}{trace}"]


def _exchanges(outcome: "Outcome") -> str:
    """`6 exchanges (5 complete, 1 client_aborted) in 1 session, 94,181 prompt tokens (80,000 cached) and 512 output tokens`."""
    told = [f"{_count(outcome.exchanges, 'exchange')}{_states(outcome)}"]
    if outcome.sessions:
        told.append(f"in {_count(len(outcome.sessions), 'session')}")
    if outcome.prompt_tokens is not None:
        cached = "" if outcome.cached_tokens is None else f" ({console.count(outcome.cached_tokens)} cached)"
        told.append(f"with {console.count(outcome.prompt_tokens)} prompt tokens{cached}")
    if outcome.output_tokens is not None:
        told.append(f"and {console.count(outcome.output_tokens)} output tokens")
    return " ".join(told)


def _states(outcome: "Outcome") -> str:
    """Nothing where all is as it should be."""
    named = [f"{console.count(number)} {state}" for state, number in outcome.states]
    if outcome.refused:
        named.append(f"{console.count(outcome.refused)} answered with an error")
    return f" ({', '.join(named)})" if len(named) > 1 or outcome.states[0][0] != "complete" else ""


def _nothing(program: str, code: int) -> list[str]:
    """Why that may be, and what to look at, likeliest first."""
    ended = f" It ended with exit code {code}: perhaps before it asked anything." if code else ""
    why = "perhaps it does not read what was set above (its own configuration or login goes first), or speaks to a fixed host"
    return [
        f"NOTHING WAS RECORDED: {program} said nothing to the recorder.{ended}",
        f"{why}: see `Nothing was recorded` in docs/guide/record.md",
    ]


def _count(number: int, what: str) -> str:
    return f"{console.count(number)} {what}" + ("" if number == 1 else "s")


def program_of(command: tuple[str, ...]) -> str:
    """How the command is called in a sentence."""
    return console.plain(PurePath(command[0]).name) or "the command"
