"""One monotonic clock a process, with a wall-clock anchor beside it.

All stamps of a process come from `CLOCK_MONOTONIC`; the anchor turns them into Unix-epoch nanoseconds, so that a step of the wall clock
while recording never makes time run backwards inside a trace.
"""

import time

monotonic_ns = time.monotonic_ns


class Clock:
    """Turns monotonic stamps into Unix-epoch nanoseconds by one anchor taken when it was made."""

    def __init__(self) -> None:
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        self._offset_ns = wall - (before + after) // 2

    def unix_ns(self, monotonic_stamp_ns: int) -> int:
        """Unix-epoch ns of a monotonic stamp of this process."""
        return monotonic_stamp_ns + self._offset_ns

    def now_ns(self) -> int:
        """Unix-epoch ns, never stepping back within the process."""
        return time.monotonic_ns() + self._offset_ns
