"""The schema in words: docs/reference/schema.md is made of what tables, columns and views say of themselves."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from storage.schema import metadata
from storage.views import VIEWS, View

_INTRODUCTION = """\
# Schema of a trace

<!-- Made by `python -m storage.documentation`; a test keeps it true. -->

A trace is one SQLite file (application id `PLHD`), so `sqlite3`, datasette and the like read it as it is. The **views** are API: they
keep their names and columns. Tables may change with the schema revision; a trace is brought up to date when it is opened.

Ids on the command line are a letter and the integer here: `e12` exchange, `s3` session, `t5` thread, `r2` run. Times are integers in ns:
Unix-epoch where the name begins with `started`, `heartbeat` or `ready` (and in `runs` and `recorder_runs`), else since the start of the
exchange. NULL is "unknown", never 0.

Blobs called zstd are frames made with the dictionary in `meta`. A request body is put together from `bodies.content` (its skeleton) and
the elements on the path from `bodies.leaf_id` to the root of `nodes`; `playhead show --raw` does it, `playhead verify` proves all of them.

    sqlite3 -box my.trace 'SELECT * FROM session_overview'
"""


def markdown() -> str:
    """The reference of views and tables."""
    parts = [_INTRODUCTION, "## Views", *(_view(view) for view in VIEWS), "## Tables", *(_table(table) for table in metadata.sorted_tables)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _view(view: View) -> str:
    return f"### {view.name}\n\n{view.says}\n\n" + _rows(("column", "is"), view.columns)


def _table(table: sa.Table) -> str:
    rows = ((column.name, _type(column), column.comment or "") for column in table.columns)
    return f"### {table.name}\n\n{table.comment}\n\n" + _rows(("column", "type", "is"), rows)


def _type(column: "sa.Column[object]") -> str:
    """As SQLite has it, with what binds the column."""
    words = [column.type.compile(sqlite.dialect()).lower()]
    words += ["key"] if column.primary_key else []
    words += [f"-> {key.column.table.name}" for key in column.foreign_keys]
    return " ".join(words)


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(markdown(), end="")
