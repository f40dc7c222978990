"""`playhead gc`: deletes sessions and runs, collects what nothing refers to, gives the space back."""

from typing import TYPE_CHECKING, Any

import click

from cli import console, options, quantities

if TYPE_CHECKING:
    from storage.retention import Result, Wanted
    from storage.trace import Trace


@click.command()
@click.argument("which", nargs=-1, metavar="[SESSION|RUN]...")
@click.option("--older-than", type=quantities.AGE, metavar="AGE", help="Delete sessions nothing has happened to for so long (12h, 30d).")
@click.option("--max-size", type=quantities.SIZE, metavar="SIZE", help="Delete the oldest sessions until the trace fits (500MB, 10GB).")
@click.option("--dry-run", is_flag=True, help="Say what would go, and delete nothing.")
@options.trace_option
@options.json_option
def gc(trace: str | None, as_json: bool, dry_run: bool, which: tuple[str, ...], **limits: int | None) -> None:
    """Delete SESSIONs and RUNs, or old ones, and give their space back.

    A session goes with all its exchanges, side calls, replays and its name; a run with what it sent. What no other session shares of their
    prompts is collected. Sessions that are being recorded stay, and so does everything while a replay is played. Without SESSION, RUN or
    limit only what nothing refers to is collected. Recording may go on meanwhile.

    \b
    Example: playhead gc --older-than 30d --max-size 10GB
    """
    from storage import retention
    from storage.writer import Writer
    from tracer import reading, wire

    with options.open_trace(trace) as opened:
        if not dry_run:
            Writer(opened, wire.split).close()  # what dead recorders left open takes its final form
        reading.catch_up(opened)
        wanted = _wanted(opened, which, **limits)
        result = (retention.rehearse if dry_run else retention.clear)(opened, wanted)
    if as_json:
        console.document(_document(result, dry_run=dry_run))
    else:
        _tell(result, dry_run=dry_run)


def _wanted(trace: "Trace", which: tuple[str, ...], *, older_than: int | None, max_size: int | None) -> "Wanted":
    import time

    from storage import ids
    from storage.retention import Wanted

    named = [ids.parse(trace, typed, "sr") for typed in which]
    return Wanted(
        sessions=[number for kind, number in named if kind == "s"],
        runs=[number for kind, number in named if kind == "r"],
        before_ns=None if older_than is None else time.time_ns() - older_than,
        most_bytes=max_size,
    )


def _document(result: "Result", *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "sessions": [f"s{number}" for number in result.sessions],
        "runs": [f"r{number}" for number in result.runs],
        "exchanges": result.deleted.exchanges,
        "bodies": result.collected.bodies,
        "nodes": result.collected.nodes,
        "elements": result.collected.elements,
        "in_use": [f"s{number}" for number in result.held],
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
    }


def _tell(result: "Result", *, dry_run: bool) -> None:
    deleted, found = result.deleted, result.collected
    verb, about = ("would delete", "about ") if dry_run else ("deleted", "")
    console.say(f"{verb} {_of(len(result.sessions), 'session')}, {_of(len(result.runs), 'run')}, {_of(deleted.exchanges, 'exchange')}")
    rows = f"{console.count(found.bodies)} bodies, {console.count(found.elements)} elements on {console.count(found.nodes)} nodes"
    console.say(f"{'nothing would refer' if dry_run else 'nothing referred'} to {rows}")
    console.say(f"{console.size(result.bytes_before)} -> {about}{console.size(result.bytes_after)}")
    if result.held:
        names = ", ".join(f"s{number}" for number in result.held[:10]) + (", …" if len(result.held) > 10 else "")
        console.say(f"left alone, because they are in use: {names}")


def _of(number: int, what: str) -> str:
    return f"{console.count(number)} {what}{'' if number == 1 else 's'}"
