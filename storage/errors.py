"""The errors a user can mend.

    PlayheadError          one line on stderr with a hint, exit 1
    ├── TraceError         the trace cannot be opened: not there, not a trace, newer, locked, read-only
    │   └── DamagedError   what is stored of one exchange cannot be trusted any more; others can be read
    ├── NotFoundError      no such session, run, thread or exchange in this trace
    ├── StorageFullError   the disk took no more; what was acknowledged before is kept
    └── TargetError        the server to be replayed against cannot be used
    VerdictError           a check said no: exit 3

What happens on the wire is a `records.Failure`, never an exception; everything else is a bug and shows its traceback.
"""


class PlayheadError(Exception):
    """Something the user can fix; `hint` says how, in a few words that start with a verb."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class TraceError(PlayheadError):
    """The trace cannot be opened or written."""


class DamagedError(TraceError):
    """Stored bytes are not those that were written; what does not share them can still be read."""


class NotFoundError(PlayheadError):
    """The trace holds nothing under this name."""


class StorageFullError(PlayheadError):
    """The disk is full: what was acknowledged before is kept, what came after is lost and counted."""


class TargetError(PlayheadError):
    """A target cannot be replayed against."""


class VerdictError(PlayheadError):
    """A verdict the user asked to be failed for (`compare --fail-if`, `verify`)."""

    exit_code = 3
