"""Mends what mitmproxy 12.3 does to an agent's traffic: each guard replaces one internal, and the contract test names every one of them.

A guard is a function that patches and gives back how to undo it. None of them looks at what an exchange means; what the recorder must
know about an end (who cut it, whether by a reset, whether by a time limit) is noted on mitmproxy's own values for `tracer.addon` to read.
"""

from collections.abc import Callable, Iterable

from tracer.guards.connections import allow_many_streams, close_always
from tracer.guards.ends import note_timeouts, note_what_waited, note_who_cut, note_who_hung_up
from tracer.guards.framing import drop_informational, frame_once, pass_trailers
from tracer.guards.patching import Undo, undo_all
from tracer.guards.refusals import refuse_in_json, refuse_prior_knowledge
from tracer.guards.short_way import pass_shortly

CHECKED_VERSION = "12.3"
"""The mitmproxy release whose internals these guards were written against."""

GUARDS: tuple[Callable[[], Undo], ...] = (
    pass_trailers,
    drop_informational,
    allow_many_streams,
    refuse_in_json,
    refuse_prior_knowledge,
    note_who_cut,
    note_what_waited,
    note_who_hung_up,
    note_timeouts,
    frame_once,
    close_always,
    pass_shortly,
)


def install(guards: Iterable[Callable[[], Undo]] | None = None) -> Undo:
    """Puts all guards (or those given) in place for the whole program; returns what takes them away again."""
    return undo_all([guard() for guard in (GUARDS if guards is None else guards)])
