"""Saving what is derived gives way: where the trace cannot be written it can be derived again, and what was deleted needs it no more."""

import logging
from collections.abc import Callable, Iterable
from itertools import batched

import sqlalchemy as sa

from storage import database
from storage.schema import exchanges
from storage.trace import Trace

_log = logging.getLogger(__name__)
_ROWS = 500


def there(connection: sa.Connection, ids: Iterable[int | None]) -> frozenset[int]:
    """Which of these exchanges exist: others may delete while somebody reads."""
    wanted = sorted({number for number in ids if number is not None})
    found: set[int] = set()
    for some in batched(wanted, _ROWS):
        found.update(connection.scalars(sa.select(exchanges.c.id).where(exchanges.c.id.in_(some))))
    return frozenset(found)


def kept(trace: Trace, save: Callable[[], None]) -> bool:
    """Whether `save` could do its work. A read-only, locked or full trace is told once, as a warning; any other error is raised."""
    if trace.is_unkept:
        return False
    try:
        save()
    except sa.exc.DBAPIError as error:
        if not database.is_transient(error):
            raise
        trace.is_unkept = True
        _log.warning("note: shown as last read, nothing new is saved: %s", database.as_trace_error(trace.location, error))
        return False
    return True
