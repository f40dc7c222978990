"""A trace that cannot be written can be read: on a read-only disk, without permission, locked by another program."""

import logging
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from replay.reuse import survey
from storage import database, derived, exchanges, reuse_rows
from storage.errors import TraceError
from storage.records import Exchange, ExchangeId
from storage.reuse_rows import IdealRow
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer
from tracer import reading

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that somebody without privileges can reach."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def path(folder: Path, make_exchange: Callable[..., Exchange]) -> Path:
    """A trace of two exchanges that nobody has read yet."""
    path = folder / "u.trace"
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, lambda _: None)
        for turns in (1, 2):
            writer.put(make_exchange(turns))
        writer.close()
    return path


@pytest.fixture
def unprivileged() -> Iterator[Callable[[], None]]:
    """Gives up the superuser's right to write anywhere, until the test ends."""
    was = os.geteuid()
    yield lambda: os.seteuid(NOBODY) if was == 0 else None
    os.seteuid(was)


@pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o444, 0o777), (0o444, 0o555), (0o666, 0o555)])
def test_what_may_not_be_written_can_be_read(
    path: Path, unprivileged: Callable[[], None], caplog: pytest.LogCaptureFixture, file_mode: int, folder_mode: int
) -> None:
    """All of it, with one note that nothing is saved; the file stays as it was."""
    before = path.read_bytes()
    path.chmod(file_mode)
    path.parent.chmod(folder_mode)
    unprivileged()
    with caplog.at_level(logging.WARNING), Trace.open(path) as trace:
        reading.catch_up(trace)
        survey.refresh(trace)
        reading.catch_up(trace)
        assert [row.id for row in exchanges.listing(trace)] == [1, 2]
        assert exchanges.load(trace, ExchangeId(2)).request.body
        assert verify(trace).is_whole
    assert path.read_bytes() == before or file_mode == 0o666
    if path.read_bytes() == before:
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["note"]
    with Trace.open(path) as trace, pytest.raises(TraceError):
        Writer(trace, lambda _: None)


def test_a_locked_trace_is_shown_as_last_read(path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds it does not keep a listing from what is stored."""
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_MS", 50)
    holding = sqlite3.connect(path, isolation_level=None)
    holding.execute("BEGIN EXCLUSIVE")
    try:
        with Trace.open(path) as trace:
            assert reading.catch_up(trace) == 0
            assert [row.dialect for row in exchanges.listing(trace)] == [None, None]
    finally:
        holding.close()
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [f"{path} is locked by another program"]
    with Trace.open(path) as trace:
        assert reading.catch_up(trace) == 2


def test_a_fault_of_ours_does_not_give_way(path: Path) -> None:
    """Only what another try can mend is passed over."""
    row = IdealRow(exchange_id=ExchangeId(1), ledger_version=1, prompt_tokens=1, ideal_tokens=1)
    with Trace.open(path) as trace, pytest.raises(sa.exc.IntegrityError):
        derived.kept(trace, lambda: reuse_rows.save(trace, [row, row]))
