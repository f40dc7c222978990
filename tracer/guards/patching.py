"""How a guard takes its place in mitmproxy, and how it gives it up again. It does not know what is mended."""

from collections.abc import Callable
from typing import Any

from mitmproxy.proxy import layer

type Commands = layer.CommandGenerator[None]
type Undo = Callable[[], None]


def replace(owner: Any, name: str, new: Any) -> Undo:
    """Puts `new` where `owner` has `name`."""
    old = getattr(owner, name)
    setattr(owner, name, new)
    return lambda: setattr(owner, name, old)


def undo_all(undone: list[Undo]) -> Undo:
    """Takes all away, the last first."""

    def undo() -> None:
        for step in reversed(undone):
            step()

    return undo
