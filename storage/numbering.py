"""Ids for new rows, given here rather than by the database so that rows of one batch can refer to each other before they are written.

Right only under the write lock of the transaction: the highest id is read once in each (`restart`).
"""

import sqlalchemy as sa


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
            number = (connection.scalar(sa.select(sa.func.max(table.c.id))) or 0) + 1
        self._next[table.name] = number + 1
        return number
