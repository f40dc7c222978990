"""Whole prompts of requests that hold only what is new: behind the prompt and the answer that they name.

Pure, over paths of names (see `replay.reuse.prefix_tree`). Names made here are negative, so that they are nobody else's. It does not know
how a request names an answer, nor what an element says.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile

type Path = tuple[int, ...]
type Key = tuple[object, ...]
"""What an element is, wherever it stands."""


class Names:
    """Names for elements in places where no request had them. `made[name]`: what the element is."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, Key], int] = {}
        self.made: dict[int, Key] = {}

    def behind(self, path: Path, keys: Sequence[Key]) -> Path:
        """The path with further elements behind it; equal ones behind equal paths get equal names."""
        named = list(path)
        for key in keys:
            place = (named[-1] if named else 0, key)
            name = self._names.get(place)
            if name is None:
                name = self._names[place] = -1 - len(self._names)
                self.made[name] = key
            named.append(name)
        return tuple(named)


def whole(names: Names, key_of: Callable[[int], Key], is_head: Callable[[int], bool], parts: tuple[Path, Key | None, Path]) -> Path:
    """A request's whole prompt. `parts`: the whole prompt before, the answer to it (None: it gave nothing), the request's own elements.

    Tools and instructions stand before everything that was said: a request's own take the place of those before, and where it has none
    (a thread that its server holds) those before stand.
    """
    before, reply, own = parts
    head, old_head = (tuple(takewhile(is_head, path)) for path in (own, before))
    if head and [key_of(name) for name in head] != [key_of(name) for name in old_head]:
        before = names.behind(head, [key_of(name) for name in before[len(old_head) :]])
    said = [] if reply is None else [reply]
    return names.behind(before, [*said, *(key_of(name) for name in own[len(head) :])])
