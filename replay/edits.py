"""The changes a replay declares, and the request that comes of them. Everything that is not declared stays equal to the byte.

Pure. It turns a recorded request and a target into the request to send (`addressed`) and asks the dialect for changes to the body
(`edited`). It does not know when or by whom it is sent, and it never sees a recorded secret: those are masked in the trace.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from replay.plan import PlannedTurn
from storage.errors import PlayheadError, TargetError
from storage.records import REDACTED, Headers, Request
from tracer import wire
from tracer.wire.contract import Changes

LENGTHS = ("recorded", "cap", "free")
"""`recorded`: a turn may generate at most what was recorded, and how far it stayed off is told; `cap`: the limit alone; `free`: as is."""

CACHES = ("as-found", "cold")

SALT_FIELDS = ("cache_salt", "extra_key")
"""Body fields that keep an engine's cache apart (docs/reference: vLLM, SGLang, TensorRT-LLM)."""

# RFC 9110 section 7.6.1 and what is about the recorded connection, not about the request.
_OF_THE_CONNECTION = "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade"
_OF_THE_MESSAGE = "host content-length expect accept-encoding"
_CONNECTION_HEADERS = frozenset(f"{_OF_THE_CONNECTION} {_OF_THE_MESSAGE}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """What a run changes in every request. `key` is never stored nor shown: provenance says only that there was one."""

    target: str
    model: str | None = None
    length: str = "recorded"
    cache: str = "as-found"
    settings: tuple[tuple[str, str], ...] = ()
    """Body field (dotted) and JSON text, from `--set`."""
    key: str | None = field(default=None, repr=False)
    run_nonce: str = ""
    """Differs between runs; what makes a `cold` run unlike every earlier one."""


class UnfitError(PlayheadError):
    """A recorded body that cannot carry the declared changes; `why` in the dialect's words."""

    def __init__(self, source: int, why: str) -> None:
        hint = "leave out --set or --cache cold, or replay other sessions"
        super().__init__(f"exchange e{source} cannot carry the declared edits: {why}", hint=hint)
        self.why = why


def target_url(text: str) -> str:
    """A target as given, checked: http or https, a host that a name server could know, no user, no query. Raises TargetError, which
    repeats none of it: a password or a key may stand there."""
    try:
        parts = urlsplit(text)
        _ = parts.port
        _ = (parts.hostname or "").encode("idna")
    except ValueError:
        parts = urlsplit("")
    if parts.username is not None or parts.password is not None:
        raise TargetError("--target holds a user or a password", hint="leave them out; --key-env VAR names the variable that holds a key")
    if parts.query or parts.fragment:
        raise TargetError("--target holds a query", hint="give the base URL alone; --key-env VAR names the variable that holds a key")
    if parts.scheme not in ("http", "https") or not parts.hostname or not _PLAIN_URL.fullmatch(text):
        raise TargetError("--target is not the URL of a server", hint="give its base URL, e.g. --target http://127.0.0.1:8000")
    return text.rstrip("/")


_PLAIN_URL = re.compile(r"[!-~]+")
"""What a request line and a Host header can carry."""


_FIELD = re.compile(r"[^\s.\[\]]+(\.[^\s.\[\]]+)*")


def setting(text: str) -> tuple[str, str]:
    """`K=V` as a body field and JSON text: V as it stands when it is JSON, else as a string. Raises PlayheadError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise PlayheadError(f"--set {text!r} names no field and value", hint="write --set FIELD=VALUE, e.g. --set temperature=0")
    if not _FIELD.fullmatch(name):
        raise PlayheadError(f"--set {name!r} is not the name of a field", hint="write fields within fields with dots, e.g. options.seed=1")
    try:
        json.loads(value)
    except ValueError:
        value = json.dumps(value)
    return name, value


def addressed(request: Request, target: str) -> str:
    """The URL to ask: the target with the recorded path and query. A base path that both have (`/v1`) is not doubled; a masked
    query value (a key) is left out."""
    recorded = urlsplit(request.url)
    base = urlsplit(target)
    path = base.path.rstrip("/") + _without_overlap(base.path.rstrip("/"), recorded.path or "/")
    kept = [pair for pair in recorded.query.split("&") if not _is_masked(pair.partition("=")[2])]
    query = "&".join(kept)
    return f"{base.scheme}://{base.netloc}{path}" + (f"?{query}" if query else "")


def _without_overlap(base: str, path: str) -> str:
    """`path` without the leading segments that `base` already ends in."""
    parts = path.split("/")
    for count in range(len(parts) - 1, 0, -1):
        head = "/".join(parts[: count + 1])
        if base.endswith(head):
            return path[len(head) :]
    return path


def _is_masked(value: str) -> bool:
    return value == REDACTED or value.startswith((f"{REDACTED}:", "%2A%2A%2A"))


def headers(recorded: Headers, dialect: str, key: str | None) -> Headers:
    """The headers to send: the recorded ones without secrets and without what belonged to the connection; the key where the dialect
    wants it. Host and length are the sender's to add."""
    kept = tuple((name, value) for name, value in recorded if name.lower() not in _CONNECTION_HEADERS and not _is_masked(value))
    if key is None:
        return (*kept, ("Accept-Encoding", "identity"))
    return (*kept, ("Accept-Encoding", "identity"), key_header(dialect, key))


def key_header(dialect: str, key: str) -> tuple[str, str]:
    """The header that carries the key in this dialect."""
    if dialect == "anthropic_messages":
        return "x-api-key", key
    if dialect == "gemini":
        return "x-goog-api-key", key
    return "Authorization", f"Bearer {key}"


def changes(edits: Edits, turn: PlannedTurn, copy: int, body: bytes = b"") -> Changes:
    """What the dialect is asked to change in this turn's body; equal to `Changes()` when nothing is."""
    limited = edits.length != "free"
    return Changes(
        model=edits.model,
        max_output_tokens=limit(turn, body) if limited else None,
        settings=tuple((name, _salted(edits, turn, copy, name, value)) for name, value in edits.settings),
        report_usage=limited,
        prefix_nonce=_nonce(edits, turn, copy) if edits.cache == "cold" and salt_field(edits) is None else None,
    )


_BUDGET = re.compile(rb'"budget_tokens"\s*:\s*(\d+)')
_LEAST_LIMIT = {"openai_responses": 16}
"""What a provider refuses to be limited below."""


def limit(turn: PlannedTurn, body: bytes) -> int | None:
    """The most that a turn may generate: what was recorded. None where that is unknown, or where the request asks for a thinking budget
    that such a limit would contradict (Anthropic answers 400)."""
    if not turn.output_tokens:
        return None
    tokens = max(turn.output_tokens, _LEAST_LIMIT.get(turn.dialect, 1))
    return None if any(int(budget) >= tokens for budget in _BUDGET.findall(body)) else tokens


def salt_field(edits: Edits) -> str | None:
    """The body field that makes a cold run cold, when `--set` names one; else a nonce in the prompt does it."""
    return next((name for name, _ in edits.settings if name in SALT_FIELDS), None)


def _nonce(edits: Edits, turn: PlannedTurn, copy: int) -> str:
    """One for each copy of each session: its own turns share it, nothing else does."""
    return f"{edits.run_nonce}-s{turn.session}-{copy}"


def _salted(edits: Edits, turn: PlannedTurn, copy: int, name: str, value: str) -> str:
    if edits.cache != "cold" or name != salt_field(edits):
        return value
    given = json.loads(value)
    return json.dumps(f"{given}-{_nonce(edits, turn, copy)}")


def declared(edits: Edits) -> list[dict[str, Any]]:
    """The edits as they are stored with the run and shown in reports; no secret in them."""
    said: list[dict[str, Any]] = [{"edit": "url", "to": edits.target}, {"edit": "accept_encoding", "to": "identity"}]
    if edits.key is not None:
        said.append({"edit": "key", "to": REDACTED})
    if edits.model is not None:
        said.append({"edit": "model", "to": edits.model})
    if edits.length != "free":
        said += [{"edit": "max_output_tokens", "to": edits.length}, {"edit": "report_usage"}]
    said += [{"edit": "set", "field": name, "to": json.loads(value)} for name, value in edits.settings]
    if edits.cache == "cold":
        salt = salt_field(edits)
        said.append({"edit": "cache_salt", "field": salt} if salt else {"edit": "prefix_nonce"})
    return said


def edited(request: Request, edits: Edits, turn: PlannedTurn, copy: int) -> Request:
    """The request to send. Raises UnfitError when the body cannot carry what was declared."""
    sent = replace(request, url=addressed(request, edits.target), headers=headers(request.headers, turn.dialect, edits.key))
    try:
        return wire.named(turn.dialect).change(sent, changes(edits, turn, copy, request.body))
    except ValueError as wrong:
        raise UnfitError(turn.source, str(wrong)) from wrong


def policy(edits: Edits, pace: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs must share to be compared."""
    return {**pace, "length": edits.length, "history": "recorded", "cache": edits.cache}
