"""Rows of the store under the keys of the command-line contract (docs/reference/cli.md). Missing is null, never 0; ids are strings."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from storage.records import ExchangeRow, SessionRow


def exchange_keys(row: "ExchangeRow") -> dict[str, Any]:
    """One line of `exchanges`. Times are ISO 8601 with microseconds; `*_ms` are counted from the start of the exchange."""
    return {
        "id": f"e{row.id}",
        "session": numbered("s", row.session),
        "thread": numbered("t", row.thread),
        "agent": row.agent,
        "parent_thread": numbered("t", row.parent_thread),
        "kind": row.kind,
        "dialect": row.dialect,
        "transport": row.transport,
        "method": row.method,
        "url": row.url,
        "model": row.model,
        "status": row.status,
        "state": row.state,
        "abort_by": row.abort_by,
        "retry_of": numbered("e", row.retry_of),
        "started_at": moment(row.started_ns),
        "ttft_ms": milliseconds(row.marks.first_content_ns),
        "e2e_ms": milliseconds(row.marks.last_content_ns),
        "prompt_tokens": row.usage.prompt,
        "cached_tokens": row.usage.cached,
        "output_tokens": row.usage.output,
        "request_bytes": row.request_bytes,
        "request_sha256": row.request_sha256,
        "response_bytes": row.response_bytes,
        "response_sha256": row.response_sha256,
        "chunks": row.chunks,
        "run": numbered("r", row.run),
        "source": numbered("e", row.source_exchange),
        "copy": row.copy,
        "turn": row.number,
        "after": [f"e{number}" for number in row.after],
        "gap_ms": milliseconds(row.gap_ns),
        "tool_ms": milliseconds(row.tool_ns),
        "human_ms": milliseconds(row.human_ns),
        "harness_ms": milliseconds(row.harness_ns),
        "stop": row.stop,
        "error": row.error,
    }


def session_keys(row: "SessionRow") -> dict[str, Any]:
    """One line of `sessions`."""
    return {
        "id": f"s{row.id}",
        "name": row.name or row.key,
        "client": row.client,
        "started_at": moment(row.started_ns),
        "duration_s": (row.ended_ns - row.started_ns) / 1e9,
        "threads": row.threads,
        "turns": row.turns,
        "side_calls": row.side_calls,
        "models": list(row.models),
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "output_tokens": row.output_tokens,
        "ideal_share": row.ideal_share,
        "note": row.note,
        "forked_from": numbered("s", row.forked_from),
    }


def numbered(kind: str, number: int | None) -> str | None:
    """`s3` for ("s", 3); None stays None."""
    return None if number is None else f"{kind}{number}"


def moment(unix_ns: int) -> str:
    """ISO 8601 in UTC with microseconds. Whole numbers all the way: a float of today's nanoseconds has lost some."""
    seconds, rest_ns = divmod(unix_ns, 1_000_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000).isoformat(timespec="microseconds")


def milliseconds(value_ns: int | None) -> float | None:
    """Nanoseconds as milliseconds, to the nanosecond."""
    return None if value_ns is None else value_ns / 1e6
