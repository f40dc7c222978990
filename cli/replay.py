"""`playhead replay`: plays recorded sessions to a server, keeps the answers in the trace, prints the figures."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from cli import console, options

if TYPE_CHECKING:
    from replay.plan import Plan
    from replay.run import Options, Outcome

_OPTIONS = (
    click.argument("sessions", nargs=-1, metavar="[SESSION]..."),
    click.option("--target", required=True, metavar="URL", help="The server's base URL, e.g. http://127.0.0.1:8000."),
    click.option("--model", metavar="NAME", help="Ask for this model instead of the recorded one."),
    click.option("--key-env", metavar="VAR", help="The environment variable that holds the key for the target."),
    click.option("--gaps", default="keep", show_default=True, metavar="keep|cap:S|drop", help="What becomes of the recorded gaps."),
    click.option("--speed", default=1.0, show_default=True, metavar="X", help="Divides every gap."),
    click.option(
        "--concurrency",
        type=click.IntRange(min=1),
        metavar="N",
        help="Sessions at once. [as many as overlapped when recorded, times the copies]",
    ),
    click.option("--copies", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="How often to play each session."),
    click.option(
        "--cache",
        type=click.Choice(["as-found", "cold"]),
        default="as-found",
        show_default=True,
        help="cold: a nonce at the head of each session's prompts, or in cache_salt where --set names it.",
    ),
    click.option(
        "--length",
        type=click.Choice(["recorded", "cap", "free"]),
        default="recorded",
        show_default=True,
        help="recorded: at most as many tokens as then, and tell how far off; cap: the limit alone; free: as the request says.",
    ),
    click.option(
        "--history", type=click.Choice(["recorded"]), default="recorded", show_default=True, help="Whose answers the prompts carry."
    ),
    click.option("--set", "settings", multiple=True, metavar="K=V", help="Set a field of every request body; V is JSON or a string."),
    click.option("--only-turns", is_flag=True, help="Leave out side calls: titles, token counts, summaries."),
    click.option("--dry-run", is_flag=True, help="Say what would be sent, and send nothing."),
    options.trace_option,
    options.json_option,
)


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@_with_options
def replay(trace: str | None, as_json: bool, dry_run: bool, sessions: tuple[str, ...], **asked: Any) -> None:
    """Play recorded SESSIONs (all of them, if none is named) to a server.

    Each turn is sent when all it waited for then is over and its gap has passed. The answers become exchanges of this trace:
    see them with `playhead exchanges RUN`, hold two runs against each other with `playhead compare RUN RUN`.

    \b
    Example: playhead replay latest --target http://127.0.0.1:8000
    """
    from replay.run import replay as play

    how = _options(**asked)
    with options.open_trace(trace) as opened:
        plan, sources = _plan(opened, sessions, only_turns=how.only_turns)
        if dry_run:
            _say_plan(plan, how, as_json)
            return
        _announce(plan, how)
        outcome = play(opened, plan, sources, how)
    _say_outcome(plan, how, outcome, as_json)
    if outcome.stopped:
        raise SystemExit(130)
    if outcome.summary["turns"] == outcome.summary["failed"]:
        raise SystemExit(1)


def _options(**asked: Any) -> "Options":
    """The command line as the engine takes it. Raises PlayheadError."""
    from replay import edits, schedule
    from replay.run import Options

    if asked["model"] is not None and not asked["model"].strip():
        raise options.WrongUsageError("--model names no model", "leave it out to ask for the recorded one")
    with options.usage():
        schedule.pace(asked["gaps"], asked["speed"])
        target = edits.target_url(asked["target"])
        fields = tuple(edits.setting(text) for text in asked["settings"])
    declared = edits.Edits(
        target=target,
        model=asked["model"],
        length=asked["length"],
        cache=asked["cache"],
        settings=fields,
        key=_key(asked["key_env"]),
    )
    kept = {name: asked[name] for name in ("gaps", "speed", "concurrency", "copies", "only_turns")}
    return Options(edits=declared, **kept)


def _key(variable: str | None) -> str | None:
    from storage.errors import PlayheadError

    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise PlayheadError(f"the environment variable {variable} holds no key", hint=f"set it, e.g. export {variable}=...")
    if not all("!" <= character <= "~" for character in key):
        raise PlayheadError(f"the key in {variable} holds characters that no header can carry", hint="set it to one line of plain letters")
    return key


def _plan(trace: Any, sessions: tuple[str, ...], *, only_turns: bool) -> tuple["Plan", dict[Any, Any]]:
    """What to send, and the recorded exchanges by id. Raises PlayheadError when there is nothing."""
    from replay.plan import plan
    from storage import exchanges, ids, lineage
    from storage.errors import PlayheadError
    from tracer import reading

    reading.catch_up(trace)
    numbers = [ids.parse(trace, text, "s")[1] for text in sessions]
    rows = exchanges.listing(trace, sessions=numbers)
    links = lineage.links(trace)
    made = plan(rows, links=links, without_side_calls={row.kind for row in rows} - {"turn"} if only_turns else ())
    if not made.turns and made.left_out:
        reasons = "; ".join(f"{number} x {_reason(reason)}" for reason, number in made.left_out.items())
        raise PlayheadError(f"nothing is left to replay, left out: {reasons}", hint="see them: playhead exchanges")
    if not made.turns:
        raise PlayheadError("there is nothing to replay in this trace", hint="record an agent first: playhead run -- COMMAND")
    return made, {row.id: row for row in rows}


def _counts(plan: "Plan", how: "Options") -> dict[str, Any]:
    """What would be sent."""
    from replay import metrics, schedule
    from replay.run import settings

    lanes = schedule.lanes(plan, schedule.pace(how.gaps, how.speed), how.copies)
    return {
        "sessions": len(lanes),
        "turns": len(plan.turns) * how.copies,
        "prompt_tokens": _times(metrics.total(turn.prompt_tokens for turn in plan.turns), how.copies),
        "output_tokens": _times(metrics.total(turn.output_tokens for turn in plan.turns), how.copies),
        "longest_wait_s": max(lane.arrival_ns + schedule.waited_ns(lane) for lane in lanes) / 1e9,
        **settings(plan, how),
    }


def _times(figure: int | None, copies: int) -> int | None:
    return None if figure is None else figure * copies


def _say_plan(plan: "Plan", how: "Options", as_json: bool) -> None:
    """`--dry-run`."""
    counts = _counts(plan, how)
    _say_wholes(counts)
    if as_json:
        console.document(counts)
        return
    rows = [
        ("sessions", console.count(counts["sessions"])),
        ("turns", console.count(counts["turns"])),
        ("prompt tokens, as recorded", console.count(counts["prompt_tokens"])),
        ("output tokens, as recorded", console.count(counts["output_tokens"])),
        ("sessions at once", console.count(counts["policy"]["concurrency"])),
        ("waiting alone takes", console.duration(counts["longest_wait_s"])),
    ]
    rows += [("left out: " + _reason(reason), console.count(number)) for reason, number in plan.left_out.items()]
    rows += [("edit: " + edit["edit"], _edit(edit)) for edit in counts["edits"]]
    console.table(rows, [console.Column(title="would be sent", whole=True), "to " + how.edits.target])


def _say_wholes(counts: dict[str, Any]) -> None:
    """That requests are sent otherwise than they were: with all that their server held."""
    for edit in counts["edits"]:
        if edit["edit"] in ("whole_input", "whole_history"):
            console.say(edit["to"])


def _reason(reason: str) -> str:
    from replay.plan import LEFT_OUT

    return LEFT_OUT[reason]


def _edit(edit: dict[str, Any]) -> str:
    return " ".join(str(edit[name]) for name in ("field", "to") if name in edit) or "yes"


def _announce(plan: "Plan", how: "Options") -> None:
    """Before the first byte is sent: what, to whom, how long at least."""
    counts = _counts(plan, how)
    wait = console.duration(counts["longest_wait_s"])
    console.say(
        f"playing {counts['turns']} turns of {counts['sessions']} sessions to {how.edits.target}, "
        f"{counts['policy']['concurrency']} at once; the gaps alone take {wait}"
    )
    for reason, number in plan.left_out.items():
        console.say(f"left out: {number} x {_reason(reason)}")
    _say_wholes(counts)
    aborted = counts["plan"]["aborted_when_recorded"]
    if aborted:
        console.say(f"{aborted} x cut short when recorded: played to the end, without a recorded length")


def _say_outcome(plan: "Plan", how: "Options", outcome: "Outcome", as_json: bool) -> None:
    """The figures; failures before anything else."""
    from storage import ids

    run = ids.text("r", outcome.run)
    figures = outcome.summary
    _say_failures(figures)
    if as_json:
        console.document({"run": run, **figures, "left_out": dict(plan.left_out)})
        return
    console.table(_latencies(figures), [console.Column(title=run, whole=True), *(_right(q) for q in ("p50", "p90", "p99", "n"))])
    click.echo(
        f"{figures['turns']} turns in {console.duration(figures['makespan_s']) or '-'}; tokens: "
        f"prompt {_said(figures['prompt_tokens'])}, cached {_said(figures['cached_tokens'])}, output {_said(figures['output_tokens'])}"
    )
    if figures["engine"] is not None and not _is_doubtful(figures["engine"]):
        click.echo(_counted(figures["engine"]))
    if any(figures[name]["too_small"] for name in ("ttft_ms", "e2e_ms")):
        click.echo("* too few turns for this quantile (fewer than five beyond it)")
    if how.edits.length == "recorded" and figures["out_of_band"]:
        click.echo(f"{figures['out_of_band']} turns are more than 10 % off their recorded length")
    click.echo(f"see every turn: playhead exchanges {run}")


def _right(title: str) -> console.Column:
    return console.Column(title=title, right=True)


def _latencies(figures: dict[str, Any]) -> list[tuple[str | None, ...]]:
    names = {"ttft_ms": "TTFT", "itl_ms": "ITL", "e2e_ms": "E2E", "lag_ms": "lag"}
    return [(said, *(_figure(figures[name], q) for q in ("p50", "p90", "p99")), str(figures[name]["n"])) for name, said in names.items()]


def _figure(found: dict[str, Any], quantile: str) -> str | None:
    said = console.milliseconds(found[quantile])
    return f"{said} *" if said and quantile in found["too_small"] else said


def _said(figure: int | None) -> str:
    return console.count(figure) or "not reported"


def _say_failures(figures: dict[str, Any]) -> None:
    """The first lines of any result: what failed, what to do about it, what was not sent."""
    if figures["failed"]:
        reasons = ", ".join(f"{number} x {console.plain(reason)}" for reason, number in figures["failures"].items())
        console.say(f"{figures['failed']} of {figures['turns']} turns failed: {reasons}")
        console.say(f"hint: {_hint(figures['failures'])}")
    if figures["interrupted"] or figures["not_sent"]:
        console.say(f"stopped: {figures['interrupted']} turns cut off, {figures['not_sent']} not sent; what had ended is kept")
    if figures["engine"] is not None and _is_doubtful(figures["engine"]):
        console.say(_counted(figures["engine"]))
    if figures["reconnected"]:
        console.say(f"{figures['reconnected']} turns were sent again: the server had closed the connection before them; the wait is lag")


def _is_doubtful(engine: dict[str, Any]) -> bool:
    """Whether what the engine counted speaks against the run: then it is among the first lines."""
    return bool(engine["contaminated"] or engine["went_back"])


def _counted(engine: dict[str, Any]) -> str:
    from replay import served

    return served.sentence(engine)


def _hint(failures: dict[str, int]) -> str:
    if "status 401" in failures or "status 403" in failures:
        return "give the target's key: --key-env VAR names the environment variable that holds it"
    if "status 404" in failures:
        return "see whether the target speaks the recorded dialect at this path, and whether --model names a model it has"
    return "see what the target said: playhead exchanges RUN, then playhead show ID"
