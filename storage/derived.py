"""Saving what is derived gives way where the trace cannot be written: it can be derived again, and what is stored be shown."""

import logging
from collections.abc import Callable

import sqlalchemy as sa

from storage import database
from storage.trace import Trace

_log = logging.getLogger(__name__)


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
