"""Ids for new rows, given here rather than by the database so that rows of one batch can refer to each other before they are written.

Right only under the write lock of the transaction: the highest id is read once in each (`restart`).
"""

from functools import cache
from typing import Any

import sqlalchemy as sa


@cache
def _highest(table: sa.Table) -> sa.Select[Any]:
    return sa.select(sa.func.max(table.c.id))


class Numbering:
    """Gives the next id of each table."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def restart(self) -> None:
        """A transaction begins: others may have written since the last."""
        self._next.clear()

    def take(self, connection: sa.Connection, table: sa.Table) -> int:
        """An id that no row of the table has."""
        number = self._next.get(table.name)
        if number is None:
            number = (connection.scalar(_highest(table)) or 0) + 1
        self._next[table.name] = number + 1
        return number
