"""Recorders that are killed, and recorders that share a trace: what was there stays, nobody is taken for dead who lives."""

import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from storage import leases, schema
from storage.exchanges import listing, load, unread
from storage.numbering import Numbering
from storage.records import Exchange, ExchangeId, FailureKind, State
from storage.trace import Trace
from storage.verify import verify
from storage.writer import Writer

STREAMING = """
    import sys, time
    from dataclasses import replace
    from storage.records import Arrival, Exchange, Request, Response
    from storage.trace import Trace
    from storage.writer import Writer

    trace = Trace.open(sys.argv[1], create=True)
    writer = Writer(trace, lambda request: None)
    begun = time.monotonic_ns()
    since = lambda: time.monotonic_ns() - begun
    head = Exchange(started_ns=time.time_ns(), request=Request(method="POST", url="http://x/", headers=(), body=b""))
    whole = replace(head, request=replace(head.request, body=b"the request" * 1000), sent_ns=since())
    writer.put(replace(whole, ended_ns=7))
    uploading = writer.begin(head)
    writer.request_piece(uploading, b"half of the ")
    streaming = writer.begin(head)
    writer.request_complete(streaming, whole)
    writer.response_head(streaming, replace(whole, response=Response(status=200, headers=(("A", "b"),), headers_at_ns=since())))
    for index in range(10_000):
        writer.arrival(streaming, Arrival(since(), b"event %05d\\n" % index))
        print(index, flush=True)
        time.sleep(0.01)
"""

SHARING = """
    import sys
    from storage.records import Element, Exchange, Request, Split
    from storage.trace import Trace
    from storage.writer import Writer

    def split(request):
        return Split(request.body, tuple(Element("m", at, at + 4) for at in range(0, len(request.body) - 3, 4)))

    name, path = sys.argv[1], sys.argv[2]
    with Trace.open(path, create=True) as trace:
        writer = Writer(trace, split, flush_interval_s=0.005)
        for turn in range(120):
            body = b"".join(b"%04d" % (number % 50) for number in range(turn)) + name.encode()
            writer.put(Exchange(started_ns=turn, request=Request(method="POST", url=name, headers=(), body=body), ended_ns=1))
            if turn % 10 == 0:
                writer.flush()
        writer.close()
        assert writer.lost == 0
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """A child that runs a program with this project's packages."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, int]:
    """A trace whose recorder was killed in the middle of a stream, and how many events had come 250 ms before."""
    path = tmp_path / "killed.trace"
    came: list[tuple[float, int]] = []
    with start(STREAMING, str(path)) as child:
        assert child.stdout
        while len(came) < 60:
            came.append((time.monotonic(), int(child.stdout.readline())))
        child.send_signal(signal.SIGKILL)
        at_s = time.monotonic()
    return path, max(index for when_s, index in came if when_s <= at_s - 0.25)


def check_killed(trace: Trace, least: int) -> None:
    whole, uploading, streaming = listing(trace)
    assert [row.state for row in (whole, uploading, streaming)] == ["complete", "interrupted", "interrupted"]
    assert uploading.request_bytes == len(b"half of the ")
    assert streaming.request_sha256 == whole.request_sha256 == hashlib.sha256(b"the request" * 1000).hexdigest()
    assert (streaming.status, streaming.chunks) == (200, streaming.response_bytes // 12)
    assert streaming.chunks > least
    found = load(trace, streaming.id)
    assert found.response
    assert found.response.body == b"".join(b"event %05d\n" % index for index in range(streaming.chunks))
    assert found.failure
    assert (found.failure.kind, found.ended_ns) == (FailureKind.INTERRUPTED, found.response.arrivals[-1].at_ns)
    assert streaming.ended_ns == found.ended_ns
    assert load(trace, uploading.id).request.body == b"half of the "
    assert unread(trace, 1) == [whole.id, uploading.id, streaming.id]
    assert verify(trace).problems == ()


def test_a_killed_recorder_leaves_what_had_come(killed: tuple[Path, int]) -> None:
    """A reader calls it interrupted at once; the next recorder gives it its final form, which reads the same."""
    path, least = killed
    with Trace.open(path) as trace:
        check_killed(trace, least)
        before = [load(trace, row.id) for row in listing(trace)]
        Writer(trace, lambda _: None).close()
        check_killed(trace, least)
        assert [load(trace, row.id) for row in listing(trace)] == before
        with trace.engine.connect() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(schema.journal)) == 0
            assert connection.scalars(sa.select(schema.exchanges.c.ended_ns)).all() == [7, 0, before[2].ended_ns]


def test_a_living_recorder_is_left_alone(trace: Trace, make_exchange: Callable[..., Exchange]) -> None:
    """A second recorder on the same trace does not end what the first has open."""
    first = Writer(trace, lambda _: None, flush_interval_s=0.01)
    ticket = first.begin(make_exchange(1, response=None, ended_ns=None))
    first.flush()
    second = Writer(trace, lambda _: None)
    second.put(make_exchange(2))
    second.close()
    assert [row.state for row in listing(trace)] == [State.IN_FLIGHT, State.COMPLETE]
    assert unread(trace, 1) == [2]
    first.finish(ticket, make_exchange(1))
    first.close()
    assert load(trace, ExchangeId(1)) == make_exchange(1, id=ExchangeId(1))


def test_two_recorders_write_one_tree(tmp_path: Path) -> None:
    """At once, from two programs, many small batches: every body comes back, shared elements are stored once."""
    path = tmp_path / "shared.trace"
    children = [start(SHARING, name, str(path)) for name in ("one", "two")]
    assert [child.wait(60) for child in children] == [0, 0]
    for child in children:
        assert child.stdout
        child.stdout.close()
    with Trace.open(path) as trace:
        rows = listing(trace)
        assert sorted((row.url, row.started_ns) for row in rows) == [(name, turn) for name in ("one", "two") for turn in range(120)]
        for row in rows:
            turn = row.started_ns
            expected = b"".join(b"%04d" % (number % 50) for number in range(turn)) + row.url.encode()
            assert load(trace, row.id).request.body == expected
        found = verify(trace)
        assert found.problems == ()
        assert found.elements <= 52
        assert found.nodes <= 122


def lease_of(trace: Trace, **changes: object) -> set[int]:
    """The living leases when this process's own is changed so."""
    with trace.engine.begin() as connection:
        number = leases.take(connection, Numbering())
        connection.execute(sa.update(schema.recorder_runs).where(schema.recorder_runs.c.id == number).values(**changes))
        return leases.living(connection)


def test_who_is_alive(trace: Trace) -> None:
    """The same process on this machine; on another machine, one that gave a sign within the minute."""
    now_ns = time.time_ns()
    assert lease_of(trace, closed_ns=now_ns) == set()
    assert lease_of(trace, began="another boot:17") == set()
    assert lease_of(trace, pid=2**22 + 1) == set()
    assert lease_of(trace, host="elsewhere", heartbeat_ns=now_ns - 70_000_000_000) == set()
    assert lease_of(trace, host="elsewhere", heartbeat_ns=now_ns - 10_000_000_000) == {5}
    assert lease_of(trace, heartbeat_ns=0) == {5, 6}


def test_a_process_is_known_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its start as `ps` tells it."""
    here = leases._began(os.getpid())
    assert here
    assert leases._began(2**22 + 1) is None
    monkeypatch.setattr(Path, "exists", lambda _: False)
    if not Path("/bin/ps").is_file() and not Path("/usr/bin/ps").is_file():
        pytest.skip("there is no ps on this machine")
    assert leases._began(os.getpid()) == leases._began(os.getpid()) != here
    assert leases._began(2**22 + 1) is None
