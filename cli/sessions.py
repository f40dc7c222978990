"""`playhead sessions`: the sessions of a trace."""

from typing import TYPE_CHECKING

import click

from cli import console, options, rows

if TYPE_CHECKING:
    from storage.records import SessionRow


@click.command()
@click.argument("which", nargs=-1, metavar="[SESSION]...")
@click.option("--explain", is_flag=True, help="Say why the exchanges of each session are one: signals, confidence, doubts.")
@options.trace_option
@options.json_option
def sessions(trace: str | None, as_json: bool, which: tuple[str, ...], explain: bool) -> None:
    """List the sessions of a trace, in order of their first request.

    `ideal` is the share of the prompt tokens that an infinite prefix cache could have reused.

    \b
    playhead sessions --trace work.trace
    playhead sessions latest --explain
    """
    from cli import explanation
    from replay.reuse import survey
    from storage import ids
    from storage import sessions as stored
    from tracer import reading

    with options.open_trace(trace) as opened:
        reading.catch_up(opened)
        survey.refresh(opened)
        found = stored.listing(opened, ids=[ids.parse(opened, text, "s")[1] for text in which])
        if explain:
            explanation.explain(opened, found, as_json=as_json)
            return
    if as_json:
        console.document([rows.session_keys(row) for row in found])
    elif found:
        console.table([_line(row) for row in found], _COLUMNS)
    else:
        console.say("No session is recorded here yet. Start with `playhead run -- COMMAND` or `playhead record`.")


_COLUMNS = [
    console.Column(title="id", whole=True),
    console.Column(title="client"),
    console.Column(title="name", optional=True),
    console.Column(title="started", whole=True),
    console.Column(title="took", right=True),
    console.Column(title="threads", right=True, optional=True),
    console.Column(title="turns", right=True),
    console.Column(title="side", right=True, optional=True),
    console.Column(title="prompt", right=True),
    console.Column(title="cached", right=True),
    console.Column(title="output", right=True),
    console.Column(title="ideal", right=True),
]


def _line(row: "SessionRow") -> list[str | int | None]:
    return [
        f"s{row.id}",
        row.client,
        row.name or row.key,
        rows.moment(row.started_ns)[5:16].replace("T", " "),
        console.duration((row.ended_ns - row.started_ns) / 1e9),
        row.threads,
        row.turns,
        row.side_calls,
        console.count(row.prompt_tokens),
        console.count(row.cached_tokens),
        console.count(row.output_tokens),
        console.share(row.ideal_share),
    ]
