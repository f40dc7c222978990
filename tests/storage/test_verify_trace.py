"""`verify` finds every kind of damage, and nothing where there is none."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.records import Element, Exchange, Split
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer


@pytest.fixture
def path(tmp_path: Path, make_exchange: Callable[..., Exchange]) -> Path:
    """A trace of three exchanges in a tree, and one still open."""
    path = tmp_path / "v.trace"
    with Trace.open(path, create=True) as trace:
        writer = Writer(
            trace, lambda request: Split(request.body, tuple(Element("m", at, at + 10) for at in range(0, len(request.body) - 9, 10)))
        )
        for turns in range(1, 4):
            writer.put(make_exchange(turns))
        writer.close()
    return path


def damage(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def problems(path: Path) -> tuple[str, ...]:
    with Trace.open(path) as trace:
        return verify(trace).problems


def test_a_whole_trace_has_no_problem(path: Path) -> None:
    """And what was looked at is counted."""
    with Trace.open(path) as trace:
        found = verify(trace)
    assert found.is_whole
    assert (found.bodies, found.exchanges, found.problem_count) == (6, 3, 0)
    assert found.elements > 10
    assert found.nodes >= found.elements
    assert found.body_bytes > 700


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE elements SET content = zeroblob(9) WHERE id = 2", "element 2: a compressed blob is damaged"),
        ("UPDATE elements SET content = (SELECT content FROM elements WHERE id = 3) WHERE id = 2", "element 2: its sha256"),
        ("UPDATE elements SET size = 11 WHERE id = 2", "element 2: 10 bytes instead of 11"),
        ("UPDATE nodes SET depth = 7 WHERE id = 2", "node 2: its depth 7 does not follow its parent's (1)"),
        ("UPDATE nodes SET parent_id = 99999 WHERE id = 3", "node 3: its parent 99999 is missing"),
        ("UPDATE nodes SET parent_id = 1 WHERE id = 3", "does not follow"),
        ("DELETE FROM nodes WHERE id = 1", "body 1: node 1 is missing"),
        ("DELETE FROM elements WHERE id = 1", "nodes 1: refers to a row of elements that is missing"),
        ("UPDATE bodies SET leaf_id = 2 WHERE id = 1", "body 1: a skeleton does not fit its elements"),
        ("UPDATE bodies SET sha256 = zeroblob(32) WHERE id = 2", "body 2: its sha256 is not that of its content"),
        ("UPDATE exchanges SET request_bytes = 1 WHERE id = 1", "exchange e1: its request is not the body it refers to"),
        ("UPDATE exchanges SET request_body_id = NULL WHERE id = 1", "exchange e1: it has ended and its request is missing"),
        ("UPDATE exchanges SET response_sha256 = zeroblob(32) WHERE id = 2", "exchange e2: its response is not the body it refers to"),
        ("UPDATE exchanges SET chunks = 3 WHERE id = 2", "exchange e2: its arrivals (2) do not make up its response"),
        ("UPDATE exchanges SET arrivals = zeroblob(4) WHERE id = 2", "exchange e2: a compressed blob is damaged"),
        ("UPDATE exchanges SET response_headers = zeroblob(4) WHERE id = 3", "exchange e3: a compressed blob is damaged"),
    ],
)
def test_each_damage_is_found(path: Path, statement: str, said: str) -> None:
    """In a line that names what is damaged."""
    damage(path, statement)
    assert any(said in problem for problem in problems(path))


def test_a_damaged_journal_is_found(path: Path) -> None:
    """Of an exchange that has not ended."""
    damage(
        path,
        "UPDATE exchanges SET ended_ns = NULL, response_body_id = NULL WHERE id = 3",
        "INSERT INTO journal VALUES (1, 3, 'response', x'0005', x'00')",
    )
    assert problems(path) == ("exchange e3: arrivals sum to 5 bytes, the body has 1",)


def test_many_problems_are_counted_and_some_listed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded on a ruin."""
    monkeypatch.setattr("storage.verify._MOST_PROBLEMS", 5)
    damage(path, "UPDATE elements SET size = size + 1")
    with Trace.open(path) as trace:
        found = verify(trace)
    assert len(found.problems) == 5
    assert found.problem_count > 10
    assert not found.is_whole
