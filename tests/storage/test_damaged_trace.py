"""A damaged trace gives no wrong byte: what is damaged is named in one line, and what is not can still be read."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from storage import elements, exchange_rows, exchanges
from storage.errors import DamagedError, TraceError
from storage.packing import Codec
from storage.records import Element, Exchange, ExchangeId, Split
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer
from tracer import reading

FIRST, SECOND = ExchangeId(1), ExchangeId(2)


@pytest.fixture
def path(tmp_path: Path, make_exchange: Callable[..., Exchange]) -> Path:
    """A trace of two exchanges in one tree."""
    path = tmp_path / "d.trace"
    with Trace.open(path, create=True) as trace:
        writer = Writer(
            trace, lambda request: Split(request.body, tuple(Element("m", at, at + 10) for at in range(0, len(request.body) - 9, 10)))
        )
        for turns in (1, 2):
            writer.put(make_exchange(turns))
        writer.close()
    return path


def damage(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(statement, values)
    connection.close()


LEAF = "(SELECT b.leaf_id FROM bodies b JOIN exchanges e ON e.request_body_id = b.id WHERE e.id = 2)"
LAST_ELEMENT = f"(SELECT element_id FROM nodes WHERE id = {LEAF})"


def test_a_changed_element_gives_no_wrong_bytes(path: Path) -> None:
    """It can be read, but its body is not what was sent: the body is refused, by name, and so nothing wrong can be replayed."""
    with Trace.open(path) as trace:
        changed = Codec.compress(trace.codec, b"0123456789")
    damage(path, f"UPDATE elements SET content = ? WHERE id = {LAST_ELEMENT}", changed)
    with Trace.open(path) as trace:
        with pytest.raises(DamagedError, match="exchange e2 is damaged: the sha256") as raised:
            exchanges.request_body(trace, SECOND)
        assert raised.value.hint == "see what else is: playhead verify"
        with pytest.raises(DamagedError, match="exchange e2"):
            exchanges.load(trace, SECOND)
        assert exchanges.load(trace, FIRST).request.body


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE elements SET content = x'' WHERE id = {LAST_ELEMENT}",
        f"UPDATE elements SET content = x'00ff' WHERE id = {LAST_ELEMENT}",
        "UPDATE bodies SET content = x'' WHERE id = (SELECT request_body_id FROM exchanges WHERE id = 2)",
        "UPDATE bodies SET content = 'text' WHERE id = (SELECT response_body_id FROM exchanges WHERE id = 2)",
        "DELETE FROM bodies WHERE id = (SELECT response_body_id FROM exchanges WHERE id = 2)",
        "UPDATE exchanges SET request_headers = x'' WHERE id = 2",
        "UPDATE exchanges SET response_headers = x'00ff' WHERE id = 2",
        "UPDATE exchanges SET arrivals = x'' WHERE id = 2",
        "UPDATE exchanges SET arrivals = NULL WHERE id = 2",
        "UPDATE exchanges SET transport = 'pigeon' WHERE id = 2",
        f"UPDATE nodes SET parent_id = id WHERE id = {LEAF}",
    ],
)
def test_one_damaged_exchange_keeps_no_other_up(path: Path, statement: str) -> None:
    """It is listed with what is wrong with it, once; all others are read as if nothing had happened."""
    damage(path, statement)
    with Trace.open(path) as trace:
        with pytest.raises(DamagedError, match="exchange e2 is damaged"):
            exchanges.load(trace, SECOND)
        assert reading.catch_up(trace) == 2
        assert reading.catch_up(trace) == 0
        first, second = exchange_rows.listing(trace)
        assert (first.dialect, first.error) == ("anthropic_messages", None)
        assert second.error is not None
        assert "damaged" in second.error


def test_a_cycle_in_the_tree_comes_to_an_end(path: Path) -> None:
    """In reading and in proving."""
    damage(path, "UPDATE nodes SET parent_id = 3 WHERE id IN (2, 3)")
    with Trace.open(path) as trace:
        with pytest.raises(DamagedError, match="does not come after its parent"):
            list(elements.paths(trace, [SECOND]))
        found = verify(trace)
    assert any("node 3 does not come after its parent 3" in problem for problem in found.problems)


@pytest.mark.parametrize("table", ["calls", "exchanges", "bodies", "nodes", "elements", "ideal"])
def test_a_missing_table_is_a_problem(path: Path, table: str) -> None:
    """Whatever the table, a trace without it is not whole."""
    damage(path, f"DROP TABLE {table}")
    with Trace.open(path) as trace:
        assert f"table {table} is missing" in verify(trace).problems


@pytest.mark.parametrize("table", ["calls", "exchanges", "bodies", "nodes", "elements"])
def test_a_corrupted_page_is_a_problem(path: Path, table: str) -> None:
    """The database's own refusal to read on is listed, and the proof comes to its end."""
    with sqlite3.connect(path) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)
    with Trace.open(path) as trace:
        assert not verify(trace).is_whole


@pytest.mark.parametrize("statement", ["DELETE FROM alembic_version", "DROP TABLE alembic_version"])
def test_a_trace_that_has_lost_its_revision_is_damaged(path: Path, statement: str) -> None:
    """Also to a recorder, which would else make its tables anew."""
    damage(path, statement)
    for create in (False, True):
        with pytest.raises(TraceError, match="damaged: it has tables"):
            Trace.open(path, create=create)


@pytest.mark.parametrize("content", [b"", b"short"])
def test_a_lost_dictionary_is_told(path: Path, content: bytes) -> None:
    """Nothing can be read without it."""
    damage(path, "UPDATE meta SET content = ? WHERE key = 'dictionary'", content)
    with pytest.raises(TraceError, match="dictionary"):
        Trace.open(path)
