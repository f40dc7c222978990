"""Opens the database behind a trace: creation, pragmas, the check that it is a trace, migration to the present schema.

SQLite by path. It knows no table but alembic's own; what is wrong with a file becomes one clear TraceError.
"""

import errno
import os
import resource
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from storage.errors import TraceError

APPLICATION_ID = 0x504C4844
"""`PLHD` in the file's header: says that this SQLite file is a trace."""

REVISIONS = ("0001", "0002", "0004", "0005", "0006")
"""Every schema revision known, oldest first; alembic is imported only when a trace is not at the last."""

_MAGIC = b"SQLite format 3\0"
_BUSY_TIMEOUT_MS = 5_000
_PAGES_A_STEP = 256
"""Given back in one transaction: others wait some milliseconds for them."""
_MIGRATING = threading.Lock()
"""Alembic keeps what it works on in module globals: one migration at a time in a process."""
DAMAGE_HINT = "restore it from a copy, or move it away and record anew"
_DAMAGE = ("no such table", "no such column", "Could not decode to UTF-8")
"""What SQLite says, under codes that can be anything, of a trace that is not as it was made."""
_NO_TRACE_HINT = "give the path of a trace, or of a file that does not exist yet"


def connect(path: Path, *, create: bool) -> sa.Engine:
    """An engine on the trace at `path`, at the present schema. TraceError: absent (unless `create`), no trace, newer, not readable."""
    try:
        if create and not path.exists():
            _create(path)
        _check_header(path, empty_allowed=create)
        return _opened(path, create=create)
    except OSError as error:
        raise TraceError(f"{path} cannot be opened: {error.strerror}", hint="check the path and its permissions") from error
    except sa.exc.DatabaseError as error:
        raise as_trace_error(path, error) from error


def connect_to_read(path: Path) -> sa.Engine:
    """An engine that changes nothing of a trace, whatever its schema: `has_present_schema` tells. TraceError: absent, no trace."""
    try:
        _check_header(path, empty_allowed=False)
        return _engine(path, listener=lambda connection, _: _set_reading_pragmas(connection, path))
    except OSError as error:
        raise TraceError(f"{path} cannot be opened: {error.strerror}", hint="check the path and its permissions") from error


def has_present_schema(engine: sa.Engine, path: Path) -> bool:
    """Whether a trace need not be migrated before it is read. TraceError: newer, or never filled."""
    with engine.connect() as connection:
        found = _revision(connection)
    if found is None:
        raise TraceError(f"{path} has no tables: its recorder was killed while creating it", hint="leave it out")
    if found not in REVISIONS:
        raise _newer(path, found)
    return found == REVISIONS[-1]


def _set_reading_pragmas(connection: sqlite3.Connection, path: Path) -> None:
    """Nothing is written, nor is what a killed recorder left in the write-ahead log put into the file when this closes."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:  # else closing only removes the empty files that opening made
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    connection.autocommit = True
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA query_only = ON")
    connection.autocommit = False


def _opened(path: Path, *, create: bool) -> sa.Engine:
    """The usual way; where that needs files beside the trace that cannot be made (read-only, full), as a file that nobody changes."""
    try:
        return _brought_up_to_date(_engine(path), path, create=create)
    except sa.exc.OperationalError as error:
        wal = path.with_name(path.name + "-wal")
        if create or _code(error) not in _UNWRITABLE or (wal.exists() and wal.stat().st_size):
            raise
    return _brought_up_to_date(_engine(path, is_frozen=True), path, create=False)


def _create(path: Path) -> None:
    """Makes a trace beside its place and then puts it there: whoever looks, or a kill at any moment, finds a whole trace or none.

    The file is readable by its owner alone; SQLite gives -wal and -shm the same mode. Of two who create one trace, one succeeds.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except FileExistsError:  # a file stands where the folder should be: "file exists" would be a riddle
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent)) from None
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        _brought_up_to_date(_engine(draft), draft, create=True).dispose()
        _put(draft, path)
    finally:
        for beside in ("", "-wal", "-shm", "-journal"):
            draft.with_name(draft.name + beside).unlink(missing_ok=True)


def _put(draft: Path, path: Path) -> None:
    """Gives the draft its name, unless somebody was quicker."""
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not path.exists():
            draft.rename(path)


def _check_header(path: Path, *, empty_allowed: bool) -> None:
    """Refuses what is no SQLite file, or that of another application, before SQLite touches it."""
    if path.is_dir():
        raise TraceError(f"{path} is a folder, not a trace", hint=_NO_TRACE_HINT)
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise TraceError(f"there is no trace at {path}", hint="record one first: playhead run -- COMMAND") from None
    if not header and empty_allowed:
        return
    if not header.startswith(_MAGIC) or int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise TraceError(f"{path} is not a trace", hint=_NO_TRACE_HINT)


class _Connection(sqlite3.Connection):
    """SQLite rolls back by itself when the disk is full; Python's rollback would then hide that error behind its own."""

    def rollback(self) -> None:
        """Ends the transaction, if there still is one, and begins the next."""
        if self.in_transaction:
            super().rollback()
        else:
            self.autocommit = True
            self.autocommit = False


def _engine(path: Path, *, is_frozen: bool = False, listener: Callable[[sqlite3.Connection, Any], None] | None = None) -> sa.Engine:
    url = sa.URL.create("sqlite", database=str(path))
    if is_frozen:
        url = sa.URL.create("sqlite", database=path.absolute().as_uri(), query={"mode": "ro", "immutable": "1", "uri": "true"})
    engine = sa.create_engine(
        url,
        hide_parameters=True,  # they are what was recorded, and errors are told and logged
        connect_args={"autocommit": False, "check_same_thread": False, "factory": _Connection},
        pool_size=4,
        max_overflow=-1,
    )
    sa.event.listen(engine, "connect", listener or _set_pragmas)
    return engine


def _set_pragmas(connection: sqlite3.Connection, _record: Any) -> None:
    """Sets what cannot be set inside a transaction. A connection that fails here is nobody else's to close."""
    try:
        _set_pragmas_in_autocommit(connection)
    except BaseException:
        connection.close()
        raise


def _set_pragmas_in_autocommit(connection: sqlite3.Connection) -> None:
    connection.autocommit = True
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
    if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    with suppress(sqlite3.OperationalError):  # a trace on a read-only disk can still be read
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_size_limit = 4194304")
    connection.autocommit = False


def _brought_up_to_date(engine: sa.Engine, path: Path, *, create: bool) -> sa.Engine:
    try:
        with engine.connect() as connection:
            found = _revision(connection)
        if found is not None and found not in REVISIONS:
            raise _newer(path, found)
        if found != REVISIONS[-1]:
            _migrate(engine, create=create)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _newer(path: Path, found: str) -> TraceError:
    return TraceError(f"{path} was written by a newer Playhead (schema {found}, this one knows {REVISIONS[-1]})", hint="upgrade playhead")


def _revision(connection: sa.Connection) -> str | None:
    """The schema revision of the trace; None when it has no tables yet."""
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return None
    found: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version")) if "alembic_version" in tables else None
    if found is None:
        raise TraceError("the trace is damaged: it has tables and does not say of which schema", hint=DAMAGE_HINT)
    return found


def _migrate(engine: sa.Engine, *, create: bool) -> None:
    """All steps in one transaction; of two that do it at once, the second finds it done."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with _MIGRATING, engine.begin() as connection:
        take_write_lock(connection)
        found = _revision(connection)
        if found is None and not create:
            raise TraceError("the trace has no tables: its recorder was killed while creating it", hint="delete it and record again")
        if found != REVISIONS[-1]:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def take_write_lock(connection: sa.Connection) -> None:
    """Writes what is there already: the first write of a transaction waits for other writers, a later one would fail."""
    connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def tidy(engine: sa.Engine) -> None:
    """Gives freed pages back to the disk and empties the write-ahead log, unless somebody else is at work on the trace."""
    with suppress(sa.exc.DatabaseError, sqlite3.DatabaseError), _unshared(engine) as connection:
        connection.execute("PRAGMA busy_timeout = 0")
        while _give_back(connection):
            pass
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def give_back(engine: sa.Engine, rest: Callable[[], None]) -> None:
    """Gives freed pages back to the disk, a few at a time with `rest` in between for others who write. Raises as the database does."""
    with _unshared(engine) as connection:
        while _give_back(connection):
            rest()
        connection.execute("PRAGMA busy_timeout = 100")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _give_back(connection: Any) -> bool:
    """One step; whether there is more to give."""
    before = int(connection.execute("PRAGMA freelist_count").fetchone()[0])
    if before:
        connection.execute(f"PRAGMA incremental_vacuum({_PAGES_A_STEP})").fetchall()
    return 0 < int(connection.execute("PRAGMA freelist_count").fetchone()[0]) < before


def used_bytes(connection: sa.Connection) -> int:
    """What the trace takes on the disk when freed pages have been given back."""
    pages, free, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def least_bytes(connection: sa.Connection) -> int:
    """About what the trace would take on the disk if it held nothing: a page for each table and index, and those of `meta`."""
    roots = connection.exec_driver_sql("SELECT count(*) FROM sqlite_master WHERE rootpage > 0").scalar_one()
    kept = connection.exec_driver_sql("SELECT sum(length(content)) FROM meta").scalar_one()
    size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    return int((roots + kept // size + 4) * size)


@contextmanager
def deleting(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection for whoever deletes: it has temporary tables of its own, and what it frees is overwritten.

    References are its user's care: for each row that goes, the database would search whole tables for others that refer to it.
    """
    with engine.connect() as connection:
        ours: Any = connection.connection.dbapi_connection
        ours.autocommit = True
        ours.execute("PRAGMA foreign_keys = OFF")
        ours.execute("PRAGMA secure_delete = FAST").fetchall()
        ours.autocommit = False
        try:
            yield connection
        finally:
            connection.invalidate()


@contextmanager
def _unshared(engine: sa.Engine) -> Iterator[Any]:
    """A driver's connection without transactions of Python's making, for what cannot be done inside one."""
    pooled = engine.raw_connection()
    try:
        connection: Any = pooled.dbapi_connection
        connection.autocommit = True
        yield connection
    finally:
        pooled.invalidate()  # it is not as the pool's others are


def as_trace_error(path: object, error: sa.exc.DBAPIError) -> TraceError:
    """What a database error says of the trace at `path`, in words for the user."""
    return _meaning(path, error.orig or error) or TraceError(
        f"{path} cannot be opened: {error.orig}", hint="check the path and its permissions"
    )


def explained(error: BaseException) -> TraceError | None:
    """What an error with a database's beneath it says of the trace; None when there is none, or it is a fault of a statement."""
    beneath: BaseException | None = error
    while beneath is not None and not isinstance(beneath, sqlite3.Error):
        beneath = beneath.__cause__ or beneath.__context__
    return _meaning("the trace", beneath) if beneath is not None else None


def _meaning(path: object, error: BaseException) -> TraceError | None:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return TraceError(f"{path} is not a trace", hint=_NO_TRACE_HINT)
    if code == sqlite3.SQLITE_CORRUPT or str(error).startswith(_DAMAGE):
        return TraceError(f"{path} is damaged: {error}", hint="see what else is: playhead verify; or restore it from a copy")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return TraceError(f"{path} is locked by another program", hint="close what holds it open and try again")
    if _is_full(error):
        return TraceError(f"{path} cannot be written: the disk is full, or the file as large as it may be", hint="free some space")
    if code == sqlite3.SQLITE_READONLY:
        return TraceError(f"{path} cannot be written: it is read-only", hint="check its permissions and those of its folder")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return TraceError(f"{path} cannot be read or written: {error}", hint="check the disk, the path and its permissions")
    return None


def is_transient(error: sa.exc.DBAPIError) -> bool:
    """Whether trying again later can help: locked, full, read-only for now, or a failing disk; not a wrong statement."""
    return _code(error) in _TRANSIENT


def is_full(error: sa.exc.DBAPIError) -> bool:
    """Whether the disk, or the file's allowed size, is full."""
    return _is_full(error.orig)


def _is_full(error: BaseException | None) -> bool:
    """A file at its allowed size is a failed write to SQLite."""
    code = getattr(error, "sqlite_errorcode", 0)
    is_limited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    return code & 0xFF == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR_WRITE and is_limited)


def _code(error: sa.exc.DBAPIError) -> int:
    """SQLite's primary result code."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF


_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_TRANSIENT = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    )
)
