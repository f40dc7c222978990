"""`playhead demo`: the whole job once, by the commands a user would type: record, replay, compare, report.

Everything it starts is on loopback and ended before it ends. It only knows the command line.
"""

import json
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli import children, console, options
from cli import output as written
from cli.children import Child
from storage.errors import PlayheadError

AGENT = str(Path(__file__).with_name("demo_agent.py"))
FOLDER = Path("demo-output")
SESSIONS, AT_ONCE = 21, 7
"""More than 20 sessions: fewer would make every interval of the comparison a weak one."""
CAPACITY_TOKENS = 6_000
"""Less than the sessions that run at the same time have in their prompts: a cache under pressure."""
SERVER = ("--prefill-tps", "8000", "--decode-tps", "200")
QUICK_SERVER = ("--prefill-tps", "50000", "--decode-tps", "1000", "--base-ms", "1")


@click.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=written.named,
    metavar="FILE",
    help="The report. [demo-output/report.html]",
)
@click.option(
    "--trace", envvar="PLAYHEAD_TRACE", metavar="FILE|URL", help="The trace to record into. [PLAYHEAD_TRACE; else demo-output/demo.trace]"
)
@options.json_option
def demo(trace: str | None, as_json: bool, output: Path | None) -> None:
    """See everything once: record a small agent, replay it to two servers, compare, report.

    The agent calls tools and starts sub-agents; the servers are simulated and differ in the size of their prefix cache only. No key
    and no network is needed, and it takes about half a minute.

    \b
    Example: playhead demo
    """
    began = time.monotonic()
    report = output or FOLDER / "report.html"
    if output:
        written.check(output)
    with sigterm_ends(), folder_unless_interrupted(needed=not (trace and output)), ExitStack() as stack:
        trace = trace or fresh(FOLDER / "demo.trace")
        shown = Shown(stack, trace)
        sessions, runs = performed(shown)
        if not as_json:
            console.say()
            click.echo(shown.run("compare", *runs))
        comparison = json.loads(shown.run("compare", *runs, "--json", told=False))
        shown.run("report", *runs, "--rules", "vllm", "-o", str(report))
    if as_json:
        console.document({"report": str(report.resolve()), "sessions": sessions, "runs": runs, "comparison": comparison})
        return
    click.echo(conclusion(comparison))
    click.echo(f"The report: {report}")
    console.say(
        f"took {console.duration(time.monotonic() - began)}; look around: playhead exchanges {runs[0]} --trace {shlex.quote(trace)}"
    )


class Shown:
    """Runs commands on the trace, and shows each as the user would type it."""

    def __init__(self, stack: ExitStack, trace: str) -> None:
        self.stack, self.trace = stack, trace

    def start(self, *arguments: str, told: bool = True) -> Child:
        """Starts a command on the trace."""
        arguments = (*arguments, "--trace", self.trace)
        if told:
            console.say(f"   $ playhead {shlex.join(arguments)}")
        return children.start(self.stack, *arguments)

    def run(self, *arguments: str, told: bool = True) -> str:
        """Runs a command on the trace to its end; what it printed."""
        return self.start(*arguments, told=told).result()


def performed(shown: Shown) -> tuple[list[str], list[str]]:
    """Records, and replays twice; the ids of the sessions and of the runs."""
    quick = children.start(shown.stack, "simulate", "--json", *QUICK_SERVER)
    large = children.start(shown.stack, "simulate", "--json", *SERVER)
    small = children.start(shown.stack, "simulate", "--json", *SERVER, "--capacity", str(CAPACITY_TOKENS))
    sessions, alone = recorded(shown, quick.announced()["url"])
    which = () if alone else sessions
    runs = []
    for number, server, cache in ((2, large, "a cache without limit"), (3, small, f"a cache of {CAPACITY_TOKENS:,} tokens")):
        console.say(f"{number}. The same sessions, played to a server with {cache}")
        played = json.loads(shown.run("replay", *which, "--target", server.announced()["url"], "--json"))
        runs.append(str(played["run"]))
        console.say(f"   {played['turns']} calls in {console.duration(played['makespan_s'])}, {played['failed']} failed")
    return sessions, runs


def recorded(shown: Shown, server: str) -> tuple[list[str], bool]:
    """Has the agent work through the recorder; the ids of the sessions this made, and whether the trace holds no others."""
    console.say(f"1. An agent at work on {SESSIONS} tasks, recorded")
    began = datetime.now(UTC)
    recorder = shown.start("record", "--upstream", server, "--listen", "127.0.0.1:0", "--json")
    url = recorder.announced()["url"]
    work = ("--url", url, "--sessions", str(SESSIONS), "--at-once", str(AT_ONCE))
    children.start(shown.stack, *work, program=(sys.executable, "-P", AGENT)).result()
    recorder.end()
    listed = json.loads(shown.run("sessions", "--json", told=False))
    mine = [session for session in listed if datetime.fromisoformat(session["started_at"]) >= began]
    console.say(f"   {counts(mine)}")
    return [session["id"] for session in mine], len(mine) == len(listed)


def counts(sessions: list[dict[str, Any]]) -> str:
    """What was recorded, in a line."""
    turns, threads, prompt = (sum(session[name] or 0 for session in sessions) for name in ("turns", "threads", "prompt_tokens"))
    return f"{len(sessions)} sessions, {threads} threads (main and sub-agents), {turns} turns, {prompt:,} prompt tokens"


def conclusion(comparison: dict[str, Any]) -> str:
    """The result in one sentence."""
    ttft, cached, uncached = (comparison[name] for name in ("ttft_ms", "cached_tokens", "uncached_tokens"))
    first, second = (cached[arm] / (cached[arm] + uncached[arm]) for arm in ("a", "b"))
    return (
        f"With {CAPACITY_TOKENS:,} tokens of cache the server reused {second:.0%} of the prompts instead of {first:.0%}, "
        f"and the first token took {ttft['ratio']:.1f} times as long "
        f"({ttft['verdict']}; {ttft['n_turns']} turns, {ttft['n_sessions']} sessions)."
    )


def fresh(trace: Path) -> str:
    """The demo's own trace, without what an earlier demo left in it."""
    for ending in ("", "-wal", "-shm"):
        trace.with_name(trace.name + ending).unlink(missing_ok=True)
    return str(trace)


@contextmanager
def folder_unless_interrupted(*, needed: bool) -> Iterator[None]:
    """The demo's own folder; one that this demo made goes again when the demo is interrupted. Raises PlayheadError."""
    made = needed and not FOLDER.exists()
    try:
        if needed:
            FOLDER.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise PlayheadError(
            f"cannot make the folder {FOLDER} here: {(error.strerror or str(error)).lower()}",
            hint="change to a folder you may write to, or give both -o and --trace",
        ) from error
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        if made:
            shutil.rmtree(FOLDER, ignore_errors=True)
        raise


@contextmanager
def sigterm_ends() -> Iterator[None]:
    """While inside, SIGTERM and a closed terminal end the demo like Ctrl-C does: with its children ended first."""

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    before = [(number, signal.signal(number, leave)) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        yield
    finally:
        for number, previous in before:
            signal.signal(number, previous)
