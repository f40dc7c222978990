"""Which of what was placed before can matter to a new call: each trail and each sighting has keys, equal where one may find the other.

Pure. Keys are 64-bit: one that is equal by chance brings a session into memory that then fits nothing.
"""

import hashlib
from collections.abc import Iterator

from tracer.identity.memory import Sighting, Trail, plain
from tracer.identity.names import aliases, names


def of_trail(trail: Trail) -> Iterator[int]:
    """What a later call may show that goes on from this one, or belongs to its session."""
    yield _named("session", trail.found_in or trail.placement.session_key)
    yield from (_named("session", alias) for alias in trail.aliases)
    if trail.state:
        yield _number(trail.state)
    for token in (*trail.reply_tokens, *trail.fresh_tokens):
        yield _named("token", token)
    if trail.response_id:
        yield _named("response", trail.response_id)
    if trail.said and trail.reply_text:
        yield _named("pair", f"{trail.said}\0{trail.reply_text}")


def of_sighting(sighting: Sighting) -> Iterator[int]:
    """What this call shows of earlier ones."""
    told = names(sighting.signs)
    label = sighting.signs.get("origin:label")
    for session in (*aliases(sighting.signs), told.session, told.own, label and f"label:{label}"):
        if session:
            yield _named("session", session)
    for name in ("body:previous_response_id", "body:previous_message_id"):
        if before := sighting.signs.get(name):
            yield _named("response", before)
    yield from (_number(state) for state in sighting.chain)
    yield from _of_talk(sighting)


def _of_talk(sighting: Sighting) -> Iterator[int]:
    asked = ""
    for view in sighting.talk:
        for token in {*view.calls, *view.answers, *view.tokens}:
            yield _named("token", token)
            if "__" in token:
                yield _named("token", token.rpartition("__")[2])
        text = plain(" ".join(view.texts)) if view.texts else ""
        if view.role == "user" and text:
            asked = plain(view.texts[-1])
        elif view.role == "assistant" and text and asked:
            yield _named("pair", f"{asked}\0{text}")


def _named(kind: str, value: str) -> int:
    return _number(hashlib.blake2b(f"{kind}:{value}".encode("utf-8", "surrogatepass"), digest_size=8).digest())


def _number(digest: bytes) -> int:
    """The first eight bytes as SQLite holds integers."""
    return int.from_bytes(digest[:8], "big", signed=True)
