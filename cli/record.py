"""`playhead record`: the recording proxy, until it is told to stop."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from cli import console, keeping, options

if TYPE_CHECKING:
    from tracer.proxy import Listener, Settings

_VARIABLES = {
    "anthropic": ("ANTHROPIC_BASE_URL",),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "googleapis": ("GOOGLE_GEMINI_BASE_URL",),
}
"""A mark in an upstream's name -> the variables its clients read."""


@click.command()
@click.option("--upstream", "given", multiple=True, metavar="URL", help="Where requests go; one listener each. [the three big providers]")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; more upstreams take the next ports. [127.0.0.1, a free port]")
@click.option("--allow-remote", is_flag=True, help="Allow --listen on an address that other machines can reach.")
@click.option(
    "--on-record-error",
    type=click.Choice(["go-on", "stop"]),
    default="go-on",
    show_default=True,
    help="When something cannot be recorded: let the traffic go on and say so, or stop.",
)
@options.allow_host_option
@options.secret_path_option
@keeping.options
@options.trace_option
@options.json_option
def record(
    *,
    given: tuple[str, ...],
    listen: str | None,
    allow_remote: bool,
    on_record_error: str,
    names: tuple[str, ...],
    secret_path: str | None,
    keep_for: int | None,
    keep_within: int | None,
    trace: str | None,
    as_json: bool,
) -> None:
    """Be the recording proxy until stopped (Ctrl-C, or SIGTERM).

    Point an agent's base URL at the address it prints; every byte goes on unchanged and is kept with its time. Keys pass through and are
    never stored. Ctrl-C once lets exchanges in flight end for a moment, twice ends at once.

    \b
    Example: playhead record --upstream https://api.anthropic.com
             ANTHROPIC_BASE_URL=http://127.0.0.1:PORT claude
    """
    settings = replace(_settings(given, listen, allow_remote), names=options.allowed_names(names), secret=options.secret_path(secret_path))
    with options.open_trace(trace, create=True) as opened:
        import asyncio

        from tracer import stopping
        from tracer.recording import record as recording

        async def until_stopped(listeners: "tuple[Listener, ...]", _: object) -> None:
            stop = stopping.on_signals()
            announce(listeners, opened.location, as_json=as_json)
            await stop.wait()

        with keeping.kept_small(opened.location, keep_for, keep_within, tell=_tell):
            asyncio.run(recording(opened, settings, until_stopped, tell=_tell, stops_when_broken=on_record_error == "stop"))


def _settings(given: tuple[str, ...], listen: str | None, allow_remote: bool) -> "Settings":
    """The listeners asked for. PlayheadError for what is no address, and for one that others can reach."""
    from storage.errors import PlayheadError
    from tracer import upstreams

    with options.usage():
        wanted = upstreams.chosen(given)
        host, port = ("127.0.0.1", 0) if listen is None else upstreams.parse_listen(listen)
    if not upstreams.is_loopback(host):
        if not allow_remote:
            raise PlayheadError(
                f"{host} can be reached from other machines: they could use your keys' servers and be recorded",
                hint="listen on 127.0.0.1, or add --allow-remote if that is what you want",
            )
        console.say(f"warning: listening on {host}: anyone who reaches this address speaks through the recorder and is recorded")

    from tracer.proxy import Settings

    return Settings(upstreams=wanted, host=host, port=port)


def announce(listeners: "tuple[Listener, ...]", location: str, *, as_json: bool) -> None:
    """Says that the listeners are ready: a JSON line each, or lines to read with the variable to paste."""
    import os

    if as_json:
        for each in listeners:
            console.document({"event": "listening", "url": each.url, "upstream": each.upstream, "trace": location, "pid": os.getpid()})
        return
    console.say(f"recording into {location} (Ctrl-C ends it)")
    for each in listeners:
        console.say(f"  {each.url}  ->  {each.upstream}")
        for name, value in _exports(each, alone=len(listeners) == 1):
            click.echo(f"export {name}={value}")


def _exports(listener: "Listener", *, alone: bool) -> list[tuple[str, str]]:
    """The variables for one listener: all of them for an upstream that may be any provider's."""
    from tracer import recipes

    everything = dict(recipes.pointing((), recipes.bases([(listener.url, listener.upstream)]), {}).variables)
    names = {
        "anthropic": ["ANTHROPIC_BASE_URL"],
        "openai": ["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        "googleapis": ["GOOGLE_GEMINI_BASE_URL"],
    }
    chosen = next((found for mark, found in names.items() if mark in listener.upstream), None)
    if chosen is None:
        chosen = [name for found in names.values() for name in found] if alone else []
    return [(name, everything[name]) for name in chosen]


def _tell(text: str) -> None:
    console.say(f"playhead: {console.plain(text)}")
