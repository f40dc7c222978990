"""How much may be deleted in one transaction, so that a recorder beside it waits no longer than a few frames of film.

Knows the clock, not what is deleted.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from storage import database, numbering

WORK_S = 0.03
"""What a transaction is meant to take."""
_FIRST, _FEWEST, _MOST = 64, 8, 20_000


class Pace:
    """Gives the size of each step by what the last one took, and lets others in between."""

    def __init__(self) -> None:
        self._most = _FIRST

    @contextmanager
    def step(self, connection: sa.Connection) -> Iterator[int]:
        """One transaction that deletes; gives how many rows it may take on. Others who remember rows will know by `retire`.

        Then it rests for as long as it took: those who wait for the lock only look for it now and then.
        """
        connection.commit()
        with connection.begin():
            database.take_write_lock(connection)
            began = time.monotonic()
            numbering.retire(connection)
            yield self._most
        took_s = time.monotonic() - began
        self._most = max(_FEWEST, min(_MOST, int(self._most * min(2.0, WORK_S / max(took_s, 1e-6)))))
        time.sleep(min(took_s, WORK_S))

    def rest(self) -> None:
        """Lets others in."""
        time.sleep(WORK_S / 4)
