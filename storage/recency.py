"""Bounded memories of what was used last. Not safe for several threads at once."""

from collections import OrderedDict


class Recency[Key, Value]:
    """A mapping that forgets what was used longest ago beyond `limit` entries."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value, which is now the most recently used; None when it is not there."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Key, value: Value) -> None:
        """Remembers a value."""
        self._kept[key] = value
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forgets all."""
        self._kept.clear()


class SizedRecency[Key]:
    """Byte strings by key, forgetting what was used longest ago beyond `limit_bytes` in all."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._kept: OrderedDict[Key, bytes] = OrderedDict()

    def get(self, key: Key) -> bytes | None:
        """The bytes; None when they are not there."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Key, content: bytes) -> None:
        """Remembers bytes under a key that is not there yet."""
        self._kept[key] = content
        self._bytes += len(content) + 100
        while self._bytes > self._limit_bytes and self._kept:
            self._bytes -= len(self._kept.popitem(last=False)[1]) + 100
