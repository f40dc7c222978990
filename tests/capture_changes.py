"""The captures of real agents, changed in ways that leave their answer key true: `import capture_changes`.

What is recognised must not hang on one signal, one order of arrival or one agent's words. Each change is a function from exchanges to
exchanges; scored by `capture_scores`. The reader is used without the store, so that many changes can be tried in a short time.
"""

import random
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import capture_scores
import captures
import orjson

from storage.records import Arrival, Exchange, ExchangeId, Origin
from tracer.identity import Identity
from tracer.identity.kinds import MARKS
from tracer.prompts import prompt_of
from tracer.sightings import sighted
from tracer.wire import requests

SECOND_NS = 1_000_000_000
START_NS = 1_790_000_000 * SECOND_NS
APART_NS = 3600 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Seen:
    """One exchange of a capture; `name` and `id` find its entry in the answer key. `at_ns`: since the capture began."""

    name: str
    id: str
    at_ns: int
    exchange: Exchange
    seeds: tuple[int, ...] = ()
    """By which its ids were renamed, in order."""

    @property
    def truth(self) -> dict[str, Any] | None:
        """Its entry, ids renamed as in the exchange; None where the answer key has none."""
        entry: dict[str, Any] | None = _entries(self.name.partition("#")[0]).get(self.id)
        if entry is None or not entry.get("parent") or not entry["parent"]["call"]:
            return entry
        call = entry["parent"]["call"].encode()
        for seed in self.seeds:
            call = _Renamed(seed).of(call)
        return entry | {"parent": entry["parent"] | {"call": call.decode()}}


type Capture = tuple[Seen, ...]
type Change = Callable[[Capture], Capture]


@cache
def _entries(name: str) -> dict[str, Any]:
    return {entry["id"]: entry for entry in captures.truth()[name]["requests"]}


@cache
def capture(name: str) -> Capture:
    """The exchanges of one capture, content encodings of requests removed."""
    loaded = captures.load(name)
    first = min(each.exchange.started_ns for each in loaded)
    return tuple(Seen(name, each.id, each.exchange.started_ns - first, _decoded(each.exchange)) for each in loaded)


def _decoded(exchange: Exchange) -> Exchange:
    text = requests.text(exchange.request)
    headers = tuple(pair for pair in exchange.request.headers if pair[0].lower() != "content-encoding")
    return exchange if text is None else replace(exchange, request=replace(exchange.request, headers=headers, body=text))


# ---- bodies and headers ----------------------------------------------------------------------------------------------


def with_bodies(change: Callable[[bytes], bytes]) -> Change:
    """The change made to every request body and every piece of an answer."""

    def changed(seen: Capture) -> Capture:
        return tuple(replace(each, exchange=_with_bytes(each.exchange, change)) for each in seen)

    return changed


def _with_bytes(exchange: Exchange, change: Callable[[bytes], bytes]) -> Exchange:
    request = replace(exchange.request, body=change(exchange.request.body))
    response = exchange.response
    if response is not None:
        response = replace(response, arrivals=tuple(Arrival(piece.at_ns, change(piece.data)) for piece in response.arrivals))
    return replace(exchange, request=request, response=response)


def without_headers(*wanted: str) -> Change:
    """Request headers left out whose name begins with one of these."""

    def changed(seen: Capture) -> Capture:
        return tuple(replace(each, exchange=_without_headers(each.exchange, wanted)) for each in seen)

    return changed


def _without_headers(exchange: Exchange, wanted: tuple[str, ...]) -> Exchange:
    headers = tuple(pair for pair in exchange.request.headers if not pair[0].lower().startswith(wanted))
    return replace(exchange, request=replace(exchange.request, headers=headers))


def without_fields(*wanted: str) -> Change:
    """Top-level members of request bodies left out."""

    def changed(seen: Capture) -> Capture:
        return tuple(replace(each, exchange=_without_fields(each.exchange, wanted)) for each in seen)

    return changed


def _without_fields(exchange: Exchange, wanted: tuple[str, ...]) -> Exchange:
    try:
        body = orjson.loads(exchange.request.body)
    except orjson.JSONDecodeError:
        return exchange
    if not isinstance(body, dict):
        return exchange
    kept = {key: value for key, value in body.items() if key not in wanted}
    return replace(exchange, request=replace(exchange.request, body=orjson.dumps(kept)))


def in_turn(*changes: Change) -> Change:
    """One change after the other."""

    def changed(seen: Capture) -> Capture:
        for change in changes:
            seen = change(seen)
        return seen

    return changed


ID_HEADERS = (
    "x-claude-", "session", "x-session", "thread-id", "x-codex", "x-openai-subagent", "x-client-request-id", "x-parent", "x-litellm",
    "openhands-conv", "conversation", "x-conversation", "x-initiator", "x-interaction",
)  # fmt: skip
NAME_HEADERS = ("user-agent", "originator", "x-title", "http-referer", "x-app", "x-stainless", "x-service", "x-goog-api-client")
_FOLDER = re.compile(rb"(session[-_]?(?:state|folder|dir)?s?)/[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def without_folders(seen: Capture) -> Capture:
    """Session folders in texts lose the id in their path."""
    return with_bodies(lambda data: _FOLDER.sub(rb"\1/here", data))(seen)


# ---- ids, words, names -----------------------------------------------------------------------------------------------

_ID = re.compile(
    rb"(?:(?:toolu|call|msg|resp|rs|fc|ses|prt|chatcmpl|ctc|req|cmp|item|task)_[0-9A-Za-z_]{6,}"
    rb"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16,64}\b|[A-Za-z0-9+/=]{40,}|[0-9]{13}_[0-9])"
)


def renamed_ids(seed: int) -> Change:
    """Every id on the wire replaced by another of its length, the same everywhere."""

    def changed(seen: Capture) -> Capture:
        chosen = _Renamed(seed)
        swapped = with_bodies(lambda data: _ID.sub(lambda match: chosen.of(match[0]), data))(seen)
        return tuple(replace(each, exchange=_headers_renamed(each.exchange, chosen), seeds=(*each.seeds, seed)) for each in swapped)

    return changed


def _headers_renamed(exchange: Exchange, chosen: "_Renamed") -> Exchange:
    headers = tuple(
        (name, _ID.sub(lambda match: chosen.of(match[0]), value.encode("latin-1")).decode("latin-1"))
        for name, value in exchange.request.headers
    )
    return replace(exchange, request=replace(exchange.request, headers=headers))


class _Renamed:
    """A substitution of digits: an id has the same other name wherever and in whatever surroundings it stands."""

    def __init__(self, seed: int) -> None:
        digits, letters = bytearray(b"0123456789"), bytearray(b"abcdef")
        drawn = random.Random(seed)
        drawn.shuffle(digits)
        drawn.shuffle(letters)
        self._table = bytes.maketrans(b"0123456789abcdef", bytes(digits + letters))

    def of(self, name: bytes) -> bytes:
        """The other name of an id."""
        head, bar, tail = name.partition(b"_") if b"_" in name[:9] else (b"", b"", name)
        return head + bar + tail.translate(self._table)


_WORD = re.compile(rb"[A-Za-z]{3,}")
_OWN_TEXTS = re.compile(b"|".join(re.escape(mark.encode()) for mark in MARKS))


def other_words(seen: Capture) -> Capture:
    """The texts with which agents make their own calls, said otherwise: what the user, the model and the tools said stays."""
    changed = []
    for each in seen:
        body = _OWN_TEXTS.sub(lambda found: _WORD.sub(lambda word: _rotated(word[0]), found[0]), each.exchange.request.body)
        changed.append(replace(each, exchange=replace(each.exchange, request=replace(each.exchange.request, body=body))))
    return tuple(changed)


def _rotated(word: bytes) -> bytes:
    return bytes((byte - (97 if byte > 96 else 65) + 7) % 26 + (97 if byte > 96 else 65) for byte in word)


def other_tools(seen: Capture) -> Capture:
    """Tools of other names."""
    names: set[bytes] = set()
    for each in seen:
        names |= set(re.findall(rb'"name"\s*:\s*"([A-Za-z_]\w{2,})"', each.exchange.request.body))
    table = {name: b"op_%d" % place for place, name in enumerate(sorted(names))}

    def called(match: "re.Match[bytes]") -> bytes:
        return match[1] + table.get(match[2], match[2]) + b'"'

    return with_bodies(lambda data: re.sub(rb'("name"\s*:\s*")([A-Za-z_]\w{2,})"', called, data))(seen)


def other_models(seen: Capture) -> Capture:
    """Models of other names."""
    return with_bodies(lambda data: re.sub(rb'("model"\s*:\s*")[^"]+"', rb'\1some-model-9"', data))(seen)


# ---- which, when -----------------------------------------------------------------------------------------------------


def from_request(first: int) -> Change:
    """The recorder came late: the first requests are missing."""
    return lambda seen: seen[first:] if len(seen) > first + 1 else seen


def until_request(last: int) -> Change:
    """The recorder left early."""
    return lambda seen: seen[:last]


def unchanged(seen: Capture) -> Capture:
    """As recorded."""
    return seen


def one_after_the_other(found: list[Capture]) -> list[tuple[int, Seen]]:
    """Captures an hour apart."""
    return [(START_NS + place * APART_NS + each.at_ns, each) for place, seen in enumerate(found) for each in seen]


def at_once(found: list[Capture]) -> list[tuple[int, Seen]]:
    """All captures begin within the same two seconds."""
    return sorted(((START_NS + place * 37_000_000 + each.at_ns, each) for place, seen in enumerate(found) for each in seen), key=_time)


def _time(pair: tuple[int, Seen]) -> int:
    return pair[0]


def twice(change: Change, apart: Callable[[list[Capture]], list[tuple[int, Seen]]]) -> Callable[[list[Capture]], list[tuple[int, Seen]]]:
    """Each capture, and the same again in other sessions with other ids."""

    def laid(found: list[Capture]) -> list[tuple[int, Seen]]:
        again = [tuple(replace(each, name=f"{each.name}#2") for each in change(renamed_ids(5)(seen))) for seen in found]
        return apart([one for pair in zip(found, again, strict=True) for one in pair])

    return laid


# ---- scores ----------------------------------------------------------------------------------------------------------


def judged(laid: Iterable[tuple[int, Seen]], *, processes: bool = False) -> list[capture_scores.Judged]:
    """What the reader makes of exchanges that came at these times. `processes`: those of clients are known, one a session."""
    identity = Identity()
    found: list[capture_scores.Judged] = []
    rows: dict[int, SimpleNamespace] = {}
    threads: dict[str, str | None] = {}
    for number, (started_ns, seen) in enumerate(sorted(laid, key=_time), 1):
        truth = seen.truth
        pid = zlib.crc32(f"{seen.name} {truth['session']}".encode()) if processes and truth else None
        exchange = replace(
            seen.exchange, id=ExchangeId(number), started_ns=started_ns, ended_ns=seen.exchange.ended_ns or 0, origin=Origin(client_pid=pid)
        )
        read = sighted(exchange, prompt_of(exchange))
        placement = identity.place(read.sighting).placement if read.sighting else None
        row = rows[number] = SimpleNamespace(
            id=number, kind=read.reading.kind, state=read.reading.state.value, session=placement and placement.session_key,
            thread=placement and placement.thread_key, retry_of=placement and placement.retry_of, placement=placement,
            parent_thread=placement and placement.parent_thread_key,
        )  # fmt: skip
        if placement is not None:
            row.kind = placement.kind
            threads[placement.thread_key] = placement.parent_thread_key
        if truth is not None and truth["kind"] != "ws_upgrade":
            found.append(capture_scores.Judged(seen.name, truth, row))
    started_by = {key: thread.parent_call for key, thread in identity.memory.threads.items()}
    return [replace(each, parent_call=started_by.get(each.row.thread)) for each in found]


def scores(names: Iterable[str], change: Change, lay: Callable[[list[Capture]], list[tuple[int, Seen]]], *, processes: bool = False) -> Any:
    """The score of these captures under a change, and a score an agent."""
    every = judged(lay([change(capture(name)) for name in names]), processes=processes)
    found: dict[str, capture_scores.Score] = defaultdict(capture_scores.Score)
    for agent in sorted({each.name.split("/")[0] for each in every}):
        capture_scores.score(every, lambda name, agent=agent: name.split("/")[0] == agent, found[agent])
    capture_scores.score(every, lambda _: True, found["all"])
    return found


FIELDS = ("metadata", "prompt_cache_key", "client_metadata", "user", "safety_identifier", "conversation")
ANONYMOUS = in_turn(without_headers(*ID_HEADERS), without_fields(*FIELDS), without_folders)
CHANGES: dict[str, tuple[Change, Callable[[list[Capture]], list[tuple[int, Seen]]]]] = {
    "as recorded, one after the other": (unchanged, one_after_the_other),
    "all at once": (unchanged, at_once),
    "other ids": (renamed_ids(1), at_once),
    "no user agent": (without_headers(*NAME_HEADERS), one_after_the_other),
    "no user agent, all at once": (without_headers(*NAME_HEADERS), at_once),
    "no id headers": (without_headers(*ID_HEADERS), one_after_the_other),
    "no metadata": (without_fields("metadata", "client_metadata"), one_after_the_other),
    "no cache keys": (without_fields("prompt_cache_key"), one_after_the_other),
    "no ids at all": (ANONYMOUS, one_after_the_other),
    "no ids at all, all at once": (ANONYMOUS, at_once),
    "no ids, no user agent, all at once": (in_turn(ANONYMOUS, without_headers(*NAME_HEADERS)), at_once),
    "other words": (other_words, one_after_the_other),
    "other words, no ids, all at once": (in_turn(other_words, ANONYMOUS), at_once),
    "other tools": (other_tools, one_after_the_other),
    "other tools, no ids": (in_turn(other_tools, ANONYMOUS), one_after_the_other),
    "other models": (other_models, one_after_the_other),
    "first request missing": (from_request(1), one_after_the_other),
    "first three missing": (from_request(3), one_after_the_other),
    "first three missing, no ids": (in_turn(from_request(3), ANONYMOUS), one_after_the_other),
    "first four requests only": (until_request(4), one_after_the_other),
    "each twice, an hour apart": (unchanged, twice(unchanged, one_after_the_other)),
    "each twice, at once": (unchanged, twice(unchanged, at_once)),
    "each twice, no ids, an hour apart": (ANONYMOUS, twice(unchanged, one_after_the_other)),
    "each twice, no ids, at once": (ANONYMOUS, twice(unchanged, at_once)),
}  # fmt: skip
"""What is changed -> how, and how captures lie in time."""
