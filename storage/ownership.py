"""Whose a trace file is: what is recorded into it must be readable by its owner alone, and that must be the user."""

import os
import stat
from pathlib import Path

from storage.errors import TraceError

_BESIDE = ("", "-wal", "-shm")
_OTHERS = 0o077


def take(location: str) -> list[str]:
    """Before something is recorded into a trace that exists: takes others' rights to it away and says so, a line a file.

    TraceError where it is another user's: who owns a file can read it, whatever its mode. Root may record for others.
    """
    told = []
    for beside in _BESIDE:
        path = Path(location).expanduser()
        path = path.with_name(path.name + beside)
        try:
            found = path.stat()
        except OSError:
            continue
        if found.st_uid != os.geteuid() and os.geteuid() != 0:
            raise TraceError(f"{path} belongs to another user, who could read what is recorded", hint="choose another place with --trace")
        if stat.S_ISREG(found.st_mode) and found.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
            told.append(f"{path} was open to others ({stat.S_IMODE(found.st_mode):04o}): now it is yours alone")
    return told
