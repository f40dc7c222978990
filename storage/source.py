"""A trace that is only read from: not a byte of its file is changed, an older one is brought up to date in a copy."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from storage import database
from storage.trace import Trace

_PAGES_A_STEP = 2_000


def check(location: str) -> None:
    """Whether there is a trace that can be read. TraceError when there is not."""
    path = Path(location).expanduser()
    engine = database.connect_to_read(path)
    try:
        database.has_present_schema(engine, path)
    except sa.exc.DBAPIError as error:
        raise database.as_trace_error(location, error) from error
    finally:
        engine.dispose()


@contextmanager
def opened(location: str, *, beside: Path) -> Iterator[Trace]:
    """The trace at a path, to read. A copy that it takes is made in the folder `beside`, and goes in the end. TraceError as Trace.open."""
    path = Path(location).expanduser()
    engine = database.connect_to_read(path)
    try:
        if database.has_present_schema(engine, path):
            yield Trace.on(location, engine)
            return
        with tempfile.TemporaryDirectory(prefix=".playhead-merge-", dir=beside) as folder:
            copy = Path(folder) / "copy.trace"
            _copy(engine, copy)
            with Trace.open(copy) as trace:
                yield trace
    except sa.exc.DBAPIError as error:
        raise database.as_trace_error(location, error) from error
    finally:
        engine.dispose()


def _copy(engine: sa.Engine, to: Path) -> None:
    """All of a trace as it is at one moment; who records into it goes on."""
    pooled = engine.raw_connection()
    try:
        ours: Any = pooled.dbapi_connection
        with sqlite3.connect(to) as target:
            ours.backup(target, pages=_PAGES_A_STEP)
        target.close()
    finally:
        pooled.invalidate()
