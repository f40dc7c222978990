"""Ids for new rows, given here rather than by the database so that rows of one batch can refer to each other before they are written.

Right only under the write lock of the transaction: the highest id is read once in each (`restart`). An id is never given twice, not even
when its row was deleted: whoever deletes notes how high the ids had come (`retire`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson
import sqlalchemy as sa

from storage.schema import meta, metadata

_KEY = "retired"
_RETIRED = sa.select(meta.c.content).where(meta.c.key == _KEY)


@dataclass(frozen=True, slots=True)
class Retired:
    """`times`: how often rows were deleted; `highest`: the highest id that was given by then, by table."""

    times: int
    highest: Mapping[str, int]


@cache
def _highest(table: sa.Table) -> sa.Select[Any]:
    return sa.select(sa.func.max(table.c.id))


class Numbering:
    """Gives the next id of each table."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._retired: Retired | None = None

    def restart(self) -> None:
        """A transaction begins: others may have written since the last."""
        self._next.clear()
        self._retired = None

    def take(self, connection: sa.Connection, table: sa.Table) -> int:
        """An id that no row of the table has or had."""
        number = self._next.get(table.name)
        if number is None:
            number = max(connection.scalar(_highest(table)) or 0, self.retired(connection).highest.get(table.name, 0)) + 1
        self._next[table.name] = number + 1
        return number

    def retired(self, connection: sa.Connection) -> Retired:
        """What was deleted up to this transaction."""
        if self._retired is None:
            self._retired = retired(connection)
        return self._retired


def retired(connection: sa.Connection) -> Retired:
    """What the trace says of deletions."""
    found = connection.scalar(_RETIRED)
    return Retired(**orjson.loads(found)) if found else Retired(0, {})


def retire(connection: sa.Connection) -> None:
    """Rows are about to be deleted in this transaction: their ids stay theirs, and whoever remembers rows will notice."""
    before = retired(connection)
    highest = {
        name: max(connection.scalar(_highest(table)) or 0, before.highest.get(name, 0))
        for name, table in metadata.tables.items()
        if "id" in table.c
    }
    connection.execute(sa.delete(meta).where(meta.c.key == _KEY))
    connection.execute(sa.insert(meta), {"key": _KEY, "content": orjson.dumps({"times": before.times + 1, "highest": highest})})
