"""A trace file: made private, opened again, refused when it is none, brought up to date when it is older."""

import os
import resource
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import alembic.command
import alembic.config
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from storage import database, schema, sessions
from storage.errors import TraceError
from storage.trace import Trace, default_location, secret

MIGRATIONS = Path(database.__file__).parent / "migrations"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_trace_is_private(tmp_path: Path) -> None:
    """The file, its write-ahead log and its folder are for their owner alone, whatever the umask."""
    path = tmp_path / "new" / "folder" / "my.trace"
    before = os.umask(0)
    try:
        with Trace.open(path, create=True) as trace:
            sessions.forget(trace)
            assert {each.name: mode(each) for each in path.parent.iterdir()} == {
                "my.trace": 0o600,
                "my.trace-wal": 0o600,
                "my.trace-shm": 0o600,
            }
            assert mode(path.parent) == 0o700
    finally:
        os.umask(before)
    assert [each.name for each in path.parent.iterdir()] == ["my.trace"]


def test_the_file_says_what_it_is(trace: Trace) -> None:
    """Application id, write-ahead log, incremental vacuum, revision."""
    with trace.engine.connect() as connection:
        asked = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("application_id", "journal_mode", "auto_vacuum")}
        asked |= {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "foreign_keys", "busy_timeout")}
        revision = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    assert asked == {
        "application_id": 0x504C4844,
        "journal_mode": "wal",
        "auto_vacuum": 2,
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 5000,
    }
    assert revision == database.REVISIONS[-1]


def test_a_trace_keeps_its_secret(tmp_path: Path) -> None:
    """Random for each trace, the same at each opening."""
    kept = []
    for name in ("a", "b", "a"):
        with Trace.open(tmp_path / name, create=True) as trace:
            kept.append(secret(trace))
    assert len(kept[0]) == 32
    assert kept[0] == kept[2] != kept[1]


def test_a_trace_without_its_secret_is_refused(trace: Trace) -> None:
    """A damaged trace says what it lacks."""
    with trace.engine.begin() as connection:
        connection.execute(sa.delete(schema.meta))
    with pytest.raises(TraceError, match="has lost its secret"):
        secret(trace)


@pytest.mark.parametrize("content", [b"", b"this is a text file, not a trace\n" * 20, b"SQLite format 3\0" + bytes(4080)])
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty file, a text, another program's database: one line and a hint, and the file stays as it was."""
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="is not a trace") as caught:
        Trace.open(path)
    assert caught.value.hint
    assert path.read_bytes() == content
    if content:
        with pytest.raises(TraceError, match="is not a trace"):
            Trace.open(path, create=True)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    """A real SQLite file without our application id."""
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE visits (id INTEGER)")
    other.close()
    with pytest.raises(TraceError, match="is not a trace"):
        Trace.open(path, create=True)


def test_a_damaged_trace_is_one_clear_line(tmp_path: Path) -> None:
    """The header is right and the rest is rubbish."""
    path = tmp_path / "damaged.trace"
    Trace.open(path, create=True).close()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises(TraceError, match="damaged"):
        Trace.open(path)


def test_absent_folders_and_places_are_clear(tmp_path: Path) -> None:
    """Not there; a folder; a folder that cannot be made; a URL."""
    with pytest.raises(TraceError, match="there is no trace at") as caught:
        Trace.open(tmp_path / "absent.trace")
    assert "playhead run" in str(caught.value.hint)
    assert not (tmp_path / "absent.trace").exists()
    with pytest.raises(TraceError, match="is a folder"):
        Trace.open(tmp_path, create=True)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TraceError, match="cannot be opened"):
        Trace.open(tmp_path / "file" / "x.trace", create=True)
    with pytest.raises(TraceError, match="postgresql:// are not supported"):
        Trace.open("postgresql://server/traces")


def test_an_empty_file_becomes_a_trace_when_asked(tmp_path: Path) -> None:
    """As `mktemp` leaves it."""
    path = tmp_path / "empty"
    path.touch()
    with Trace.open(path, create=True) as trace:
        assert sessions.listing(trace) == []


def test_a_newer_trace_is_refused(tmp_path: Path) -> None:
    """With the advice to upgrade."""
    path = tmp_path / "newer.trace"
    with Trace.open(path, create=True) as trace, trace.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(TraceError, match=r"written by a newer Playhead \(schema 9999") as caught:
        Trace.open(path)
    assert caught.value.hint == "upgrade playhead"


def migrated(path: Path, revision: str) -> None:
    """A file at an older revision, as an older version would have left it."""
    engine = database._engine(path)
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        alembic.command.upgrade(config, revision)
    engine.dispose()


@pytest.mark.parametrize("revision", database.REVISIONS)
def test_older_traces_are_brought_up_to_date(tmp_path: Path, revision: str) -> None:
    """From each revision to the last, with what they hold."""
    path = tmp_path / "older.trace"
    migrated(path, revision)
    with sqlite3.connect(path) as older:
        older.execute("INSERT INTO sessions (id, key, name) VALUES (7, 'k', 'mine')")
        kept = older.execute("SELECT content FROM meta WHERE key = 'secret'").fetchone()[0]
    older.close()
    with Trace.open(path) as trace:
        assert secret(trace) == kept
        with trace.engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT name FROM sessions WHERE id = 7").scalar() == "mine"
            assert connection.exec_driver_sql("SELECT count(*) FROM session_overview").scalar() == 0


def test_a_trace_killed_while_it_was_made(tmp_path: Path) -> None:
    """No tables yet: refused for reading, finished by the next recorder."""
    path = tmp_path / "half.trace"
    path.touch()
    engine = database._engine(path)
    engine.connect().close()
    engine.dispose()
    with pytest.raises(TraceError, match="killed while creating it"):
        Trace.open(path)
    Trace.open(path, create=True).close()
    Trace.open(path).close()


def test_the_migrations_make_the_schema(trace: Trace) -> None:
    """No table, column or index differs, and the revisions known are the steps there are."""
    with trace.engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, schema.metadata) == []
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    steps = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(steps)) == database.REVISIONS


def test_a_locked_trace_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program holds the write lock while a trace must be migrated."""
    path = tmp_path / "locked.trace"
    migrated(path, database.REVISIONS[0])
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_MS", 50)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(TraceError, match="locked by another program"):
            Trace.open(path)
    finally:
        other.close()


def test_the_default_location(monkeypatch: pytest.MonkeyPatch) -> None:
    """PLAYHEAD_TRACE wins; else it is the user's own folder."""
    monkeypatch.setenv("PLAYHEAD_TRACE", "/somewhere/my.trace")
    assert default_location() == "/somewhere/my.trace"
    monkeypatch.delenv("PLAYHEAD_TRACE")
    assert default_location().endswith("playhead.trace")


def test_a_trace_can_be_read_where_it_cannot_be_written(tmp_path: Path) -> None:
    """A database error in words, whatever SQLite answers there."""
    words = {
        sqlite3.SQLITE_FULL: "disk is full",
        sqlite3.SQLITE_BUSY: "locked",
        sqlite3.SQLITE_NOTADB: "is not a trace",
        sqlite3.SQLITE_READONLY: "is read-only",
    }
    for code, said in words.items():
        original = sqlite3.OperationalError("words of the driver")
        original.sqlite_errorcode = code
        error = sa.exc.OperationalError("SELECT 1", {}, original)
        assert said in str(database.as_trace_error(tmp_path, error))
        assert database.is_full(error) == (code == sqlite3.SQLITE_FULL)
        assert database.is_transient(error) == (code != sqlite3.SQLITE_NOTADB)


def test_a_file_as_large_as_it_may_be_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite calls it a failed write; where no limit is set it is one."""
    original = sqlite3.OperationalError("disk I/O error")
    original.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    error = sa.exc.OperationalError("INSERT", {}, original)
    monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 20, 1 << 20))
    assert database.is_full(error)
    assert "as large as it may be" in str(database.as_trace_error("a.trace", error))
    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert not database.is_full(error)
    assert "disk I/O error" in str(database.as_trace_error("a.trace", error))


def test_a_trace_made_by_several_at_once_is_made_once(tmp_path: Path) -> None:
    """Whoever opens a trace that is not there finds the same whole trace, and no draft is left beside it."""
    path = tmp_path / "shared.trace"
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: Trace.open(path, create=True), range(8)))
    secrets = {secret(trace) for trace in opened}
    for trace in opened:
        trace.close()
    assert len(secrets) == 1
    assert [found.name for found in tmp_path.iterdir()] == ["shared.trace"]
