"""A session or thread as a tree: agents under those that started them, each with its calls and their times. It knows no engine."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from cli import console, rows
from cli.exchanges import ending

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from storage.records import ExchangeRow
    from storage.thread_rows import CompactionRow, ThreadRow

_COLUMNS = [
    console.Column(title="", whole=True),
    console.Column(title="start", right=True, whole=True),
    console.Column(title="kind", whole=True),
    console.Column(title="waited for", whole=True),
    console.Column(title="TTFT", right=True),
    console.Column(title="took", right=True),
    console.Column(title="prompt", right=True),
    console.Column(title="output", right=True),
    console.Column(title="cached", right=True, optional=True),
    console.Column(title="", optional=True),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What is drawn: exchanges in order of start, their threads, compactions by the exchange before which they stand."""

    found: "Sequence[ExchangeRow]"
    threads: "Mapping[int, ThreadRow]"
    compactions: "Mapping[int, CompactionRow]"

    @property
    def start_ns(self) -> int:
        """When the first exchange began."""
        return min((row.started_ns for row in self.found), default=0)


def load(trace: Any, found: "Sequence[ExchangeRow]") -> Tree:
    """Everything that a tree of these exchanges shows."""
    from storage import thread_rows

    ids = [row.thread for row in found if row.thread is not None]
    threads = list(dict.fromkeys(ids))
    made = {row.exchange: row for row in thread_rows.compactions(trace, threads)}
    return Tree(found=found, threads=thread_rows.of_threads(trace, threads), compactions=made)


# ---- as lines ------------------------------------------------------------------------------------------------------


def draw(tree: Tree) -> None:
    """Prints the tree on stdout, no wider than the terminal."""
    items = list(_items(tree, _roots(tree.found), 0))
    calls = [item for item in items if not isinstance(item, str)]
    deepest = max((depth for _, depth in calls), default=0)
    fit = console.terminal_columns() - 2 * (deepest + 1)
    lines = iter(console.table_lines([_cells(row, tree.start_ns) for row, _ in calls], _COLUMNS, fit))
    if calls:
        click.echo("  " + next(lines))
    for item in items:
        click.echo(console.shortened(item, console.terminal_columns()) if isinstance(item, str) else "  " * (item[1] + 1) + next(lines))


def _items(tree: Tree, threads: "Sequence[int | None]", depth: int) -> "Iterator[str | tuple[ExchangeRow, int]]":
    for thread in threads:
        mine = [row for row in tree.found if row.thread == thread]
        yield "  " * depth + _thread_line(tree, thread, mine)
        children = dict.fromkeys(row.thread for row in tree.found if row.parent_thread == thread and row.thread != thread)
        started = {child: min(row.started_ns for row in tree.found if row.thread == child) for child in children}
        for row in mine:
            early = [child for child in started if started[child] < row.started_ns]
            for child in early:
                del started[child]
            yield from _items(tree, early, depth + 1)
            if (made := tree.compactions.get(row.id)) is not None:
                yield "  " * depth + f"  -- compaction: {_compaction(made)}"
            yield row, depth
        yield from _items(tree, list(started), depth + 1)


def _roots(found: "Sequence[ExchangeRow]") -> "list[int | None]":
    threads = dict.fromkeys(row.thread for row in found)
    parents = {row.thread: row.parent_thread for row in found}
    return [thread for thread in threads if parents[thread] not in threads or parents[thread] == thread]


def _thread_line(tree: Tree, thread: int | None, mine: "Sequence[ExchangeRow]") -> str:
    known = tree.threads.get(thread or 0)
    begin_ns = min(row.started_ns for row in mine)
    took = console.duration((max(row.started_ns + (row.ended_ns or 0) for row in mine) - begin_ns) / 1e9)
    parts = [f"{rows.numbered('t', thread) or 'no thread'}  {console.plain(mine[0].agent or 'unknown agent')}", f"took {took}"]
    if known is not None and known.mode is not None:
        parts.append(known.mode)
    if known is not None and known.joined_exchange is not None:
        parts.append(f"back in e{known.joined_exchange}")
    if known is not None and known.parent_exchange is not None:
        call = f" {console.plain(known.parent_call)}" if known.parent_call else ""
        parts.append(f"by e{known.parent_exchange}{call}")
    return ", ".join(parts)


def _compaction(made: "CompactionRow") -> str:
    tokens = f"{console.count(made.tokens_before) or '?'} -> {console.count(made.tokens_after) or '?'} tokens"
    if made.elements_kept is None:
        return tokens
    return f"{tokens}, {made.elements_kept} of {made.elements_before} elements kept"


def _cells(row: "ExchangeRow", start_ns: int) -> "list[console.Cell]":
    return [
        f"e{row.id}",
        f"+{console.duration((row.started_ns - start_ns) / 1e9)}",
        f"{row.kind} {row.number or ''}".rstrip(),
        waited(row),
        console.milliseconds(rows.milliseconds(row.marks.first_content_ns)),
        console.milliseconds(rows.milliseconds(row.ended_ns)),
        console.count(row.usage.prompt),
        console.count(row.usage.output),
        console.count(row.usage.cached),
        "" if row.state == "complete" and (row.status or 200) < 400 else ending(row),
    ]


def waited(row: "ExchangeRow") -> str | None:
    """Whose time the gap before a call was, the longest part: `tool 0.6 s`."""
    parts = [(part_ns, word) for word, part_ns in (("tool", row.tool_ns), ("human", row.human_ns), ("agent", row.harness_ns)) if part_ns]
    if not parts:
        return None
    part_ns, word = max(parts)
    return f"{word} {console.milliseconds(part_ns / 1e6)}"


# ---- as a document -------------------------------------------------------------------------------------------------


def document(tree: Tree) -> dict[str, Any]:
    """`threads` in order of their first exchange, each with its exchanges; `compactions` in order."""
    by_thread: dict[int | None, list[ExchangeRow]] = {}
    for row in tree.found:
        by_thread.setdefault(row.thread, []).append(row)
    return {
        "threads": [_thread_keys(tree, thread, members) for thread, members in by_thread.items()],
        "compactions": [_compaction_keys(made) for made in tree.compactions.values()],
    }


def _thread_keys(tree: Tree, thread: int | None, members: "Sequence[ExchangeRow]") -> dict[str, Any]:
    known = tree.threads.get(thread or 0)
    begin_ns = min(row.started_ns for row in members)
    end_ns = max(row.started_ns + (row.ended_ns or 0) for row in members)
    return {
        "thread": rows.numbered("t", thread),
        "agent": members[0].agent,
        "parent_thread": rows.numbered("t", members[0].parent_thread),
        "parent_exchange": rows.numbered("e", known.parent_exchange if known else None),
        "parent_call": known.parent_call if known else None,
        "mode": known.mode if known else None,
        "joined_exchange": rows.numbered("e", known.joined_exchange if known else None),
        "started_at": rows.moment(begin_ns),
        "duration_s": (end_ns - begin_ns) / 1e9,
        "exchanges": [rows.exchange_keys(row) for row in members],
    }


def _compaction_keys(made: "CompactionRow") -> dict[str, Any]:
    return {
        "exchange": rows.numbered("e", made.exchange),
        "thread": rows.numbered("t", made.thread),
        "before": rows.numbered("e", made.before),
        "made_by": rows.numbered("e", made.made_by),
        "tokens_before": made.tokens_before,
        "tokens_after": made.tokens_after,
        "elements_before": made.elements_before,
        "elements_after": made.elements_after,
        "elements_kept": made.elements_kept,
    }
