"""`playhead merge`: brings other traces into one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cli import console, options

if TYPE_CHECKING:
    from storage.merge import Merged
    from storage.names import Carried
    from storage.trace import Trace


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="TRACE...")
@options.trace_option
@options.json_option
def merge(trace: str | None, as_json: bool, sources: tuple[str, ...]) -> None:
    """Bring other TRACEs into one (--trace; made when there is none).

    Exchanges that are there already are not brought again, so that a merge can be repeated, and goes on where it was broken off. The TRACEs
    are not changed; one that is being recorded into gives what has ended. Runs come with their replays, sessions with the names you gave.

    \b
    Example: playhead merge alice.trace bob.trace --trace team.trace
    """
    _check(trace, sources)
    with options.open_trace(trace, create=True) as into:
        found = []
        for name in sources:
            came, carried = _merged(into, name)
            found.append(_document(name, came, carried))
            if not as_json:
                _tell(found[-1])
    if as_json:
        console.document({"trace": into.location, "sources": found})


def _check(trace: str | None, sources: tuple[str, ...]) -> None:
    """Before anything is made: each source is there, and is another."""
    from storage import source
    from storage.errors import PlayheadError
    from storage.trace import default_location

    here = Path(trace or default_location()).expanduser()
    for name in sources:
        source.check(name)
        if here.exists() and here.samefile(Path(name).expanduser()):
            raise PlayheadError(f"{name} cannot be merged into itself", hint="name the trace to merge into with --trace")


def _merged(into: "Trace", name: str) -> "tuple[Merged, Carried]":
    """Brings one source in, and has it read."""
    from storage import merge as merging
    from storage import names, sessions, source
    from tracer import reading, wire

    beside = Path(into.location).expanduser().parent
    with source.opened(name, beside=beside) as opened:
        read_ns = merging.last_read_ns(into)
        came = merging.merge(into, opened, wire.split)
        if read_ns is not None and came.earliest_ns is not None and came.earliest_ns <= read_ns:
            sessions.forget(into)  # what was read goes on from what came: all of it is read in order
        reading.catch_up(into)
        return came, names.carry(into, opened, came.ids)


def _document(name: str, came: "Merged", carried: "Carried") -> dict[str, Any]:
    return {
        "trace": name,
        "exchanges": came.exchanges,
        "already_there": came.known,
        "in_flight": came.open,
        "damaged": came.damaged,
        "runs": came.runs,
        "names": carried.given,
        "other_names": [{"here": here, "there": there} for here, there in carried.kept],
    }


def _tell(found: dict[str, Any]) -> None:
    parts = [f"{console.count(found['exchanges'])} exchanges", f"{console.count(found['runs'])} runs"]
    parts += [f"{console.count(found['already_there'])} were there already"] if found["already_there"] else []
    parts += [f"{console.count(found['in_flight'])} are still in flight"] if found["in_flight"] else []
    console.say(f"{console.plain(found['trace'])}: {', '.join(parts)}")
    for problem in found["damaged"]:
        console.say(f"  left out: {console.plain(problem)}")
    for pair in found["other_names"]:
        console.say(f"  {console.plain(pair['there'])} keeps the name it has here: {console.plain(pair['here'])}")
