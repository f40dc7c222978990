"""`playhead reread`: derives calls, sessions and threads again from the bytes, with the readers of this version."""

import click

from cli import console, options


@click.command()
@options.trace_option
@options.json_option
def reread(trace: str | None, as_json: bool) -> None:
    """Derive calls, sessions and threads again from the recorded bytes.

    The bytes are not touched. Sessions keep their ids.

    \b
    Example: playhead reread
    """
    from storage import sessions as stored
    from tracer import reading

    with options.open_trace(trace) as opened:
        stored.forget(opened)
        count = reading.catch_up(opened)
        found = len(stored.listing(opened))
    if as_json:
        console.document({"exchanges": count, "sessions": found})
    else:
        console.say(f"{console.count(count)} exchanges read again, {console.count(found)} sessions")
