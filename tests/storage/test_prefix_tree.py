"""The prefix tree in a real trace: prompts share nodes exactly as far as they are equal, and every body comes back."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import elements, schema, tree
from storage.elements import paths
from storage.exchanges import load_many
from storage.intake import Intake
from storage.numbering import Numbering
from storage.records import Element, Exchange, ExchangeId, Request, Split
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer

type Bodies = Sequence[tuple[bytes, tuple[Element, ...]]]


def store(trace: Trace, bodies: Bodies) -> list[ExchangeId]:
    """Stores requests of these bodies, taken apart so, one after the other in one transaction."""
    splits = {body: Split(body, spans) for body, spans in bodies}
    intake = Intake(trace.codec, lambda request: splits[request.body], Numbering())
    with trace.engine.begin() as connection:
        return [
            ExchangeId(
                intake.put(connection, Exchange(started_ns=0, request=Request(method="POST", url="", headers=(), body=body), ended_ns=1))
            )
            for body, _ in bodies
        ]


def prompt(*contents: str, system: str = "", decorated: int | None = None, shuffle: bool = False) -> tuple[bytes, tuple[Element, ...]]:
    """A body of messages and a system text, which comes first in the prompt and, with `shuffle`, last in the body."""
    body = bytearray(b"{")
    spans = []
    order = [*contents, system] if shuffle else [system, *contents]
    for index, content in enumerate(order):
        start = len(body)
        body += json.dumps(content).encode()
        cuts: tuple[tuple[int, int], ...] = ()
        if decorated == index:
            cuts = ((len(body), len(body) + 4),)
            body += b"MARK"
        spans.append(Element("system" if content is system else "message", start, len(body), cuts))
        body += b", "
    return bytes(body) + b"}", tuple([spans[-1], *spans[:-1]] if shuffle else spans)


def test_prompts_share_nodes_as_far_as_they_are_equal(trace: Trace) -> None:
    """Whatever the order in the body and wherever the marker stands."""
    ids = store(
        trace,
        [
            prompt("a", "b", system="S"),
            prompt("a", "b", "c", system="S", decorated=3),
            prompt("a", "b", "c", "d", system="S", shuffle=True),
            prompt("a", "x", "c", system="S"),
            prompt("a", "b", system="other"),
        ],
    )
    found = dict(paths(trace, ids))
    one, two, three, four, five = (found[number] for number in ids)
    assert two[:3] == one
    assert three[:4] == two
    assert (four[:2], len(four)) == (one[:2], 4)
    assert not set(five) & set(one)
    named = elements.node_elements(trace, [*three, *four, 10**6])
    assert [named[node][0] for node in three] == ["system"] + ["message"] * 4
    contents = elements.element_bytes(trace, [named[node][1] for node in three])
    assert [contents[named[node][1]] for node in three] == [b'"S"', b'"a"', b'"b"', b'"c"', b'"d"']
    assert named[four[3]][1] == named[three[3]][1], "an element stands in the trace once, whatever came before it"
    assert verify(trace).problems == ()


def test_a_group_is_part_of_the_path(trace: Trace) -> None:
    """The same bytes as a tool and as a message are one element on two nodes."""
    body = b"[one]"
    (first,) = store(trace, [(body, (Element("tool", 1, 4),))])
    (second,) = store(trace, [(body + b" ", (Element("message", 1, 4),))])
    found = dict(paths(trace, [first, second]))
    named = elements.node_elements(trace, [found[first][0], found[second][0]])
    assert sorted(group for group, _ in named.values()) == ["message", "tool"]
    assert len({element for _, element in named.values()}) == 1


def test_bodies_kept_whole_have_no_path(trace: Trace) -> None:
    """They are listed with an empty one."""
    (number,) = store(trace, [(b"whatever this is", ())])
    assert list(paths(trace, [number])) == [(number, ())]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(
            prompt,
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["a", "b", "long text " * 9]),
            st.text(max_size=5),
            system=st.sampled_from(["S", "T"]),
            decorated=st.sampled_from([None, 0, 1, 2]),
            shuffle=st.booleans(),
        ),
        max_size=12,
    )
)
def test_any_sequence_of_prompts_comes_back(tmp_path_factory: pytest.TempPathFactory, bodies: Bodies) -> None:
    """Shared or not, and a prompt's path is the same however the trace came to hold it."""
    with Trace.open(tmp_path_factory.mktemp("tree") / "t", create=True) as trace:
        ids = store(trace, bodies)
        assert [exchange.request.body for exchange in load_many(trace, ids)] == [body for body, _ in bodies]
        assert verify(trace).problems == ()
        found = dict(paths(trace, ids))
        by_content: dict[tuple[bytes, ...], tuple[int, ...]] = {}
        for number, (body, spans) in zip(ids, bodies, strict=True):
            content = tuple(
                body[each.start : each.end].removesuffix(b"MARK") if each.cuts else body[each.start : each.end] for each in spans
            )
            assert by_content.setdefault(content, found[number]) == found[number]


@pytest.fixture
def small_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every memory forgets almost at once, so that everything is looked up."""
    monkeypatch.setattr(tree, "_REMEMBERED_IDS", 2)
    monkeypatch.setattr(tree, "_REMEMBERED_BODIES", 1)
    monkeypatch.setattr(elements, "_REMEMBERED_NODES", 3)
    monkeypatch.setattr(elements, "_REMEMBERED_BYTES", 150)


@pytest.mark.usefixtures("small_memories")
def test_what_is_forgotten_is_looked_up(trace: Trace) -> None:
    """Two threads in turn, with memories that hold next to nothing: the same tree."""
    turns = [f"message {number}" for number in range(30)]
    bodies = [prompt(*turns[:count], system=name) for count in range(1, 31) for name in ("one", "two")]
    ids = store(trace, bodies)
    with trace.engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.elements)) == 32
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) == 62
    assert [exchange.request.body for exchange in load_many(trace, ids)] == [body for body, _ in bodies]
    assert [len(path) for _, path in paths(trace, ids)] == [len(spans) for _, spans in bodies]


def test_a_later_recorder_goes_on_with_the_tree(trace: Trace, make_body: Callable[..., bytes]) -> None:
    """What an earlier one stored is found again, node by node."""
    turns = [f"message {number}" for number in range(40)]
    store(trace, [prompt(*turns[:39], system="S")])
    store(trace, [prompt(*turns, system="S")])
    with trace.engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) == 41


def test_a_session_costs_what_is_new_in_it(tmp_path: Path, make_exchange: Callable[..., Exchange]) -> None:
    """200 turns through the writer: a node and an element a turn, and a file far smaller than its bodies."""
    bodies = []
    with Trace.open(tmp_path / "s.trace", create=True) as trace:
        turns = [hashlib.sha512(b"%d" % number).hexdigest() * 8 for number in range(200)]
        splits = {}
        writer = Writer(trace, lambda request: splits[request.body])
        for count in range(1, 201):
            body, spans = prompt(*turns[:count], system="S", decorated=count, shuffle=False)
            splits[body] = Split(body, spans)
            bodies.append(body)
            writer.put(make_exchange(1, request=Request(method="POST", url="", headers=(), body=body), response=None))
        writer.close()
        found = verify(trace)
        assert (found.elements, found.nodes, found.problems) == (201, 201, ())
    size = sum(each.stat().st_size for each in tmp_path.iterdir())
    assert sum(map(len, bodies)) > 20_000_000
    assert size < 400_000
