"""Names for broken and lost tokens, only where they are computed, and the place in the prompt where it changed.

Pure. The vocabulary is that of docs/reference/reuse.md; what is not certain here is `unexplained`. It does not know texts, only elements.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile

from replay.reuse.blocks import Limits
from replay.reuse.ideal import Prompt
from replay.reuse.prompts import Counted

_GRAINS = (1, 16, 32, 64, 128, 256)
"""Block sizes in use: what rounding can explain."""

_LISTS = {
    "anthropic_messages": {"tool": "tools", "system": "system", "message": "messages"},
    "openai_chat": {"tool": "tools", "system": "messages", "message": "messages"},
    "openai_responses": {"tool": "tools", "system": "instructions", "message": "input", "item": "input"},
    "gemini": {"tool": "tools", "system": "systemInstruction", "message": "contents", "item": "contents"},
}
"""The body's own name for the list that a group of elements stands in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a prompt changed. `path`: its element as the body names it; `token`: tokens before the change; `byte` None: not computed."""

    path: str
    byte: int | None
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """A turn beside the one before it. `shared` is counted here, `broken` as the server counts."""

    before: Prompt | None
    now: Prompt
    shared: int
    broken: int
    group: str | None = None
    """Of the first element that differs."""
    dialect: str | None = None
    place: int = 0
    """Its number among the elements of its list."""


def changed(before: Prompt, now: Prompt, group_of: Callable[[int], str], dialect: str | None) -> tuple[str | None, int]:
    """Group of the first element in which two prompts differ and its number in its list; the group is None where one only goes on."""
    equal = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before.path, now.path, strict=False)))
    groups = [group_of(path[equal]) for path in (before.path, now.path) if len(path) > equal]
    if not groups:
        return None, 0
    first = min(groups, key=_rank)
    lists = _LISTS.get(dialect or "", {})
    here = lists.get(first, first)
    return first, sum(1 for name in now.path[:equal] if lists.get(group := group_of(name), group) == here)


def _rank(group: str) -> int:
    """Prompt order: where one prompt has its last tool and the other a further one, the tools changed."""
    return ("tool", "system").index(group) if group in ("tool", "system") else 2


def broken_cause(turned: Turned) -> str:
    """Why a turn no longer shares all of the one before it."""
    if turned.before is not None and turned.before.space != turned.now.space:
        return "model_changed"
    return {"tool": "tools_changed", "system": "system_changed"}.get(turned.group or "", "history_rewritten")


def broken_place(turned: Turned) -> Place | None:
    """The element that changed; None where the model did, or nothing is known of it."""
    if turned.group is None or (turned.before is not None and turned.before.space != turned.now.space):
        return None
    name = _LISTS.get(turned.dialect or "", {}).get(turned.group, turned.group)
    return Place(path=f"{name}[{turned.place}]", byte=None, token=turned.shared)


def lost_cause(lost: int | None, ideal: int, one: Counted, *, band: float, limits: Limits | None) -> str | None:
    """Why a target did not reuse what it could; None where it lost nothing, or less than an estimate can say."""
    reported, tokens = one.row.usage.cached, (one.prompt.tokens if one.prompt else 0)
    if reported is None:
        return _cost_of_rules(lost, limits) if limits is not None else "not_reported" if ideal else None
    if not lost or lost <= band:
        return None
    if limits is None and reported and any(max(0, min(ideal, tokens - 1)) // grain * grain == reported for grain in _GRAINS):
        return "block_rounding"
    return "unexplained"


def _cost_of_rules(lost: int | None, limits: Limits) -> str | None:
    """What of the rules costs the tokens, where only one of them can."""
    if not lost:
        return None
    limited = (limits.capacity_tokens is not None, limits.ttl_ns is not None)
    if limited == (False, False) or lost < limits.block_tokens:
        return "block_rounding"
    return {(True, False): "evicted", (False, True): "expired"}.get(limited, "unexplained")
