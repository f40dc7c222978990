"""`playhead runs`: the replays of a trace."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli import console, options

if TYPE_CHECKING:
    from storage.records import Run

_FIGURES = ("turns", "failed", "interrupted", "not_sent", "reconnected", "makespan_s", "ttft_ms", "e2e_ms", "cached_tokens", "engine")


@click.command()
@options.trace_option
@options.json_option
def runs(trace: str | None, as_json: bool) -> None:
    """List the replays of a trace, in order.

    \b
    Example: playhead runs
    """
    from storage import runs as stored

    with options.open_trace(trace) as opened:
        found = [_listed(run) for run in stored.listing(opened)]
    if as_json:
        console.document(found)
        return
    columns: list[console.Column | str] = [
        console.Column(title="run", whole=True),
        "started",
        "target",
        *_right("turns", "failed", "TTFT p50", "took"),
    ]
    console.table([_row(run) for run in found], columns)


def _listed(run: "Run") -> dict[str, Any]:
    """One run as JSON: its figures are None until it has ended."""
    from storage import ids

    figures = run.summary or {}
    policy = run.settings.get("policy", {})
    return {
        "id": ids.text("r", run.id),
        "started_at": datetime.fromtimestamp(run.started_ns / 1e9, UTC).isoformat(),
        "target": run.target,
        "state": _state(run),
        **{name: policy.get(name) for name in ("gaps", "speed", "concurrency", "copies", "length", "history", "cache")},
        "planned": run.settings.get("plan", {}).get("turns"),
        **{name: figures.get(name) for name in _FIGURES},
        "target_found": run.settings.get("target_found"),
    }


def _state(run: "Run") -> str:
    """Ended, running, or broken off: its process is gone and it never ended."""
    from storage import leases

    if run.ended_ns is not None:
        return "ended"
    player = run.settings.get("player")
    return "broken off" if player is None or leases.is_gone(player) else "running"


def _row(run: dict[str, Any]) -> tuple[str | None, ...]:
    ttft = (run["ttft_ms"] or {}).get("p50")
    return (
        run["id"],
        run["started_at"][:19].replace("T", " "),
        run["target"],
        console.count(run["turns"]),
        console.count(run["failed"]),
        console.milliseconds(ttft),
        console.duration(run["makespan_s"]) if run["state"] == "ended" else run["state"],
    )


def _right(*titles: str) -> list[console.Column]:
    return [console.Column(title=title, right=True) for title in titles]
