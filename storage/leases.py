"""Who is recording into a trace, and whether they still live: an exchange in flight whose recorder is dead was interrupted.

A lease names a process so that no later one is taken for it. On another machine only its heartbeat can be seen.
"""

import os
import socket
import time
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from storage.numbering import Numbering
from storage.schema import recorder_runs

BEAT_S = 5.0
"""How often a recorder with exchanges in flight gives a sign of life."""
_SILENT_NS = 60_000_000_000
"""After so long without a sign a recorder on another machine is taken for dead."""

_BEAT = sa.update(recorder_runs).where(recorder_runs.c.id == sa.bindparam("lease")).values(heartbeat_ns=sa.bindparam("now_ns"))
_END = sa.update(recorder_runs).where(recorder_runs.c.id == sa.bindparam("lease")).values(closed_ns=sa.bindparam("now_ns"))


def take(connection: sa.Connection, numbering: Numbering) -> int:
    """Notes this process as a recorder; the lease's id."""
    number = numbering.take(connection, recorder_runs)
    now_ns = time.time_ns()
    row = {"id": number, "host": socket.gethostname(), "pid": os.getpid(), "began": _began(os.getpid()) or ""}
    connection.execute(sa.insert(recorder_runs), row | {"started_ns": now_ns, "heartbeat_ns": now_ns})
    return number


def beat(connection: sa.Connection, lease: int) -> None:
    """A sign of life."""
    connection.execute(_BEAT, {"lease": lease, "now_ns": time.time_ns()})


def end(connection: sa.Connection, lease: int) -> None:
    """Gives the lease back."""
    connection.execute(_END, {"lease": lease, "now_ns": time.time_ns()})


def living(connection: sa.Connection) -> set[int]:
    """The leases whose recorders are at work."""
    found = connection.execute(sa.select(recorder_runs).where(recorder_runs.c.closed_ns.is_(None)))
    return {row.id for row in found if _lives(row)}


def over(connection: sa.Connection) -> list[int]:
    """The leases that nobody will use again. One of another machine only when it was given back: what is silent there may be idle."""
    here = socket.gethostname()
    rows = connection.execute(sa.select(recorder_runs)).all()
    return [row.id for row in rows if row.closed_ns is not None or (row.host == here and not _lives(row))]


def mark() -> dict[str, str | int]:
    """What names this process among all others, as JSON."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": _began(os.getpid()) or ""}


def is_gone(mark: dict[str, Any]) -> bool:
    """Whether the process of a mark has ended; False where it is on another machine: that cannot be seen."""
    return is_here(mark) and _began(mark["pid"]) != mark["began"]


def is_here(mark: dict[str, Any]) -> bool:
    """Whether the process of a mark is, or was, on this machine."""
    return bool(mark["host"] == socket.gethostname())


def _lives(row: sa.Row[Any]) -> bool:
    if row.host != socket.gethostname():
        return bool(time.time_ns() - row.heartbeat_ns < _SILENT_NS)
    return bool(_began(row.pid) == row.began)


def _began(pid: int) -> str | None:
    """When a process of this machine began, in words that no other process with this pid has; None when there is none."""
    if Path("/proc/self/stat").exists():
        return _began_by_proc(pid)
    import subprocess  # not needed on Linux, and it costs every command a few ms

    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10)
    return found.stdout.strip() or None


def _began_by_proc(pid: int) -> str | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in ("Z", "X"):  # killed and not yet waited for by its parent
        return None
    return f"{_boot()}:{fields[19]}"


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
