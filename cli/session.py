"""`playhead session`: what the user knows better than the signals: merge, split, name, annotate; all of it can be taken back."""

from typing import TYPE_CHECKING, Any

import click

from cli import console, options, rows

if TYPE_CHECKING:
    from storage.decisions import Decision


@click.group()
def session() -> None:
    """Say what you know of a session: it beats every signal.

    Your decisions are kept apart from what is derived: `playhead reread` keeps them, `playhead session undo` takes the latest back.

    \b
    playhead session merge s3 s4
    playhead session split s3 --at e57
    playhead session rename s3 "nightly run"
    """


@session.command()
@click.argument("into", metavar="SESSION")
@click.argument("others", metavar="OTHER...", nargs=-1, required=True)
@options.trace_option
@options.json_option
def merge(trace: str | None, as_json: bool, into: str, others: tuple[str, ...]) -> None:
    """Make OTHER a part of SESSION, whose id and name it takes.

    The threads of OTHER stay threads of their own.

    \b
    Example: playhead session merge s3 s4
    """
    from storage import decisions
    from storage.errors import PlayheadError

    with options.open_trace(trace) as opened:
        kept = _key(opened, into)
        gone = [_key(opened, other) for other in dict.fromkeys(others)]
        if kept in gone:
            raise PlayheadError("a session cannot be merged into itself", hint="name two different sessions: playhead sessions")
        for key in gone:
            decisions.add(opened, decisions.MERGE, key, kept)
        _apply(opened, [kept, *gone])
        _tell(opened, kept, as_json=as_json)


@session.command()
@click.argument("which", metavar="SESSION")
@click.option("--at", "first", metavar="EXCHANGE", required=True, help="The first exchange of the new session.")
@options.trace_option
@options.json_option
def split(trace: str | None, as_json: bool, which: str, first: str) -> None:
    """Make a new session of what SESSION says from EXCHANGE on.

    \b
    Example: playhead session split s3 --at e57
    """
    from storage import decisions, exchange_rows, ids
    from storage.errors import PlayheadError
    from storage.records import ExchangeId

    with options.open_trace(trace) as opened:
        key = _key(opened, which)
        exchange = ExchangeId(ids.parse(opened, first, "e")[1])
        mine = exchange_rows.listing(opened, sessions=[ids.parse(opened, which, "s")[1]])
        if exchange not in {row.id for row in mine}:
            raise PlayheadError(f"e{exchange} is not in that session", hint=f"see what is: playhead exchanges {which}")
        if exchange == mine[0].id:
            raise PlayheadError(f"e{exchange} is its first exchange: nothing would be left", hint="name a later one")
        decisions.add(opened, decisions.SPLIT, key, f"{key}~e{exchange}", exchange)
        _apply(opened, [key])
        _tell(opened, f"{key}~e{exchange}", as_json=as_json)


@session.command()
@click.argument("which", metavar="SESSION")
@click.argument("name")
@options.trace_option
@options.json_option
def rename(trace: str | None, as_json: bool, which: str, name: str) -> None:
    """Give SESSION a name; an empty one takes it away.

    \b
    Example: playhead session rename latest "nightly run"
    """
    from storage import ids
    from storage import sessions as stored

    with options.open_trace(trace) as opened:
        key = _key(opened, which)
        stored.rename(opened, ids.parse(opened, key, "s")[1], name.strip() or None)
        _tell(opened, key, as_json=as_json)


@session.command()
@click.argument("which", metavar="SESSION")
@click.argument("text")
@options.trace_option
@options.json_option
def note(trace: str | None, as_json: bool, which: str, text: str) -> None:
    """Keep a note with SESSION; an empty TEXT takes it away.

    \b
    Example: playhead session note s3 "with the old prompt"
    """
    from storage import ids
    from storage import sessions as stored

    with options.open_trace(trace) as opened:
        key = _key(opened, which)
        stored.annotate(opened, ids.parse(opened, key, "s")[1], text.strip() or None)
        _tell(opened, key, as_json=as_json)


@session.command()
@options.trace_option
@options.json_option
def undo(trace: str | None, as_json: bool) -> None:
    """Take the latest merge or split back.

    \b
    Example: playhead session undo
    """
    from storage import decisions

    with options.open_trace(trace) as opened:
        taken = decisions.undo(opened)
        _apply(opened, [taken.session, taken.into])
    if as_json:
        console.document(keys(taken))
    else:
        console.say(f"taken back: {words(taken)}")


@session.command("decisions")
@options.trace_option
@options.json_option
def listed(trace: str | None, as_json: bool) -> None:
    """List the merges and splits that hold, in the order in which they were made.

    \b
    Example: playhead session decisions
    """
    from storage import decisions

    with options.open_trace(trace) as opened:
        made = decisions.load(opened)
    if as_json:
        console.document([keys(each) for each in made])
    for each in () if as_json else made:
        click.echo(f"{rows.moment(each.made_ns)[:16].replace('T', ' ')}  {words(each)}")


def keys(decision: "Decision") -> dict[str, Any]:
    """A decision as a document."""
    return {
        "kind": decision.kind,
        "session": decision.session,
        "into": decision.into,
        "exchange": rows.numbered("e", decision.exchange),
        "made_at": rows.moment(decision.made_ns),
    }


def words(decision: "Decision") -> str:
    """A decision in a line."""
    if decision.exchange is None:
        return f"{console.plain(decision.session)} is part of {console.plain(decision.into)}"
    return f"{console.plain(decision.session)} ends before e{decision.exchange}"


def _key(trace: Any, typed: str) -> str:
    """The key of the session that was meant. Raises NotFoundError."""
    from storage import ids
    from storage import sessions as stored
    from tracer import reading

    reading.catch_up(trace)
    return stored.key_of(trace, ids.parse(trace, typed, "s")[1])


def _apply(trace: Any, sessions: list[str]) -> None:
    """Places again what a decision touches."""
    from storage import sessions as stored
    from tracer import reading

    stored.forget_sessions(trace, sessions)
    reading.catch_up(trace)


def _tell(trace: Any, key: str, *, as_json: bool) -> None:
    from storage import ids
    from storage import sessions as stored

    number = ids.parse(trace, key, "s")[1]
    found = stored.listing(trace, ids=[number])
    if as_json:
        console.document(rows.session_keys(found[0]) if found else {"id": f"s{number}"})
    elif found:
        console.say(f"s{number}  {console.plain(found[0].name or key)}: {found[0].turns} turns, {found[0].threads} threads")
