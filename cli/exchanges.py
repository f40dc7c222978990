"""`playhead exchanges`: every exchange of a trace, of sessions or of runs, in order of start."""

from typing import TYPE_CHECKING, Any

import click

from cli import console, options, rows

if TYPE_CHECKING:
    from storage.records import ExchangeRow


@click.command()
@click.argument("which", nargs=-1, metavar="[SESSION|RUN]...")
@options.trace_option
@options.json_option
def exchanges(trace: str | None, as_json: bool, which: tuple[str, ...]) -> None:
    """List exchanges in order.

    Without SESSION or RUN: everything recorded. Replayed exchanges are listed with their run.

    \b
    playhead exchanges latest
    playhead exchanges r2 --json
    """
    with options.open_trace(trace) as opened:
        found = listed(opened, which)
    if as_json:
        console.document([rows.exchange_keys(row) for row in found])
    elif found:
        console.table([_line(row) for row in found], _COLUMNS)
    else:
        console.say("Nothing is recorded here yet. Start with `playhead run -- COMMAND` or `playhead record`.")


def listed(trace: Any, which: tuple[str, ...]) -> "list[ExchangeRow]":
    """The rows of sessions and runs named on the command line; of all that is recorded when none is."""
    from storage import exchanges as stored
    from storage import ids
    from storage.records import RunId
    from tracer import reading

    reading.catch_up(trace)
    found = [ids.parse(trace, text, "sr") for text in which]
    sessions = [number for kind, number in found if kind == "s"]
    return stored.listing(trace, sessions=sessions, runs=[RunId(number) for kind, number in found if kind == "r"])


_COLUMNS = [
    console.Column(title="id", whole=True),
    console.Column(title="session", whole=True, optional=True),
    console.Column(title="thread", whole=True, optional=True),
    console.Column(title="kind"),
    console.Column(title="model"),
    console.Column(title="state"),
    console.Column(title="prompt", right=True),
    console.Column(title="cached", right=True),
    console.Column(title="output", right=True),
    console.Column(title="TTFT", right=True),
    console.Column(title="E2E", right=True, optional=True),
    console.Column(title="path", optional=True),
]


def _line(row: "ExchangeRow") -> list[str | None]:
    return [
        f"e{row.id}",
        rows.numbered("s", row.session),
        rows.numbered("t", row.thread),
        row.kind if row.dialect else "unread",
        row.model,
        ending(row),
        console.count(row.usage.prompt),
        console.count(row.usage.cached),
        console.count(row.usage.output),
        console.milliseconds(rows.milliseconds(row.marks.first_content_ns)),
        console.milliseconds(rows.milliseconds(row.marks.last_content_ns)),
        f"{row.method} {row.url.partition('://')[2].partition('/')[2].partition('?')[0]}",
    ]


def ending(row: "ExchangeRow") -> str:
    """How it ended in a word or two: `200`, `client_aborted`, `error 502`."""
    if row.state == "complete":
        return str(row.status)
    return row.state if row.status in (None, 200) else f"{row.state} {row.status}"
