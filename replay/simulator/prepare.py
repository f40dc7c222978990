"""From the bytes of a request to what will be said: read, counted, scripted, in tokens. Pure and slow, so it runs beside the event loop.

It does not know the cache, nor when anything is sent.
"""

import hashlib
import random
from array import array
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import orjson

from replay.simulator import composing, routes, script
from replay.simulator.cache import Ids
from replay.simulator.timing import Timing
from replay.simulator.values import Asked, Json, Refusal, Spoken
from storage.records import Request
from tracer import tokens
from tracer.wire import content_encoding
from tracer.wire.contract import Call, Text, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the simulated server is. None: no limit, no expiry, any model, any key."""

    timing: Timing
    rules: str = "vllm"
    block_tokens: int = 16
    capacity_tokens: int | None = None
    ttl_ns: int | None = None
    model: str | None = None
    context_tokens: int | None = None
    output_tokens: int = 40
    script: str = "task"
    reports_cached: bool = True
    api_key: str | None = None
    fail_rate: float = 0.0
    seed: int = 0
    truth: Path | None = None
    websocket: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A whole request. Header names in lower case; times CLOCK_MONOTONIC, ns."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    received_ns: int
    whole_ns: int

    def header(self, name: str) -> str | None:
        """The first value under this name."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A model call ready to be served. `name` is unique among the server's answers."""

    dialect: routes.Spoken
    asked: Asked
    name: str
    ids: Ids
    parts: tuple[Spoken, ...]
    stop: str

    @property
    def output_tokens(self) -> int:
        return sum(len(part.pieces) for part in self.parts)


def prepare(received: Received, settings: Settings, serial: int) -> Prepared:
    """What this request asks for and what will be answered. `serial` numbers the server's requests. Raises Refusal."""
    path, query = routes.parted(received.target)
    dialect = routes.dialect_of(path)
    assert dialect is not None
    check_key(received, query, settings)
    asked = dialect.ask(path, query, _json(received))
    ids = prompt_ids(received)
    _check(asked, len(ids), settings)
    _fail_at_times(dialect, settings, serial)
    digest = hashlib.sha256(received.body).hexdigest()
    name = hashlib.sha256(f"{settings.seed}:{serial}:{digest}".encode()).hexdigest()[:24]
    steps = script.steps(asked, script=settings.script, words=settings.output_tokens, seed=f"{settings.seed}:{digest}")
    parts = composing.spoken(steps, asked, name)
    stop = composing.stop(steps, asked, sum(len(part.pieces) for part in parts))
    return Prepared(dialect=dialect, asked=asked, name=name, ids=ids, parts=parts, stop=stop)


def check_key(received: Received, query: str, settings: Settings) -> None:
    """Raises Refusal where another key is wanted."""
    if settings.api_key is None:
        return
    bearer = (received.header("authorization") or "").removeprefix("Bearer ")
    given = [bearer, received.header("x-api-key"), received.header("x-goog-api-key"), *parse_qs(query).get("key", [])]
    if settings.api_key not in given:
        raise Refusal(401, "key", "the API key is missing or wrong")


def _json(received: Received) -> Json:
    try:
        found = orjson.loads(decoded(received))
    except ValueError as error:
        raise Refusal(400, "invalid", f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refusal(400, "invalid", "the body is not a JSON object")
    return found


def decoded(received: Received) -> bytes:
    """The body without its content encoding. Raises Refusal."""
    encoding = received.header("content-encoding")
    text = received.body if encoding is None else content_encoding.decode(received.body, encoding)
    if text is None:
        raise Refusal(400, "invalid", f"the body is not in the content encoding it claims: {encoding}")
    return text


def prompt_ids(received: Received, path: str | None = None) -> Ids:
    """Token ids of a prompt: of each element in prompt order, as the ledger counts them. Raises Refusal where there is no prompt."""
    request = Request(method="POST", url=f"http://simulator{path or received.target}", headers=received.headers, body=received.body)
    elements = tokens.prompt_ids(request)
    if elements is None:
        raise Refusal(400, "invalid", "the body has no messages that can be read")
    ids: Ids = array("I")
    for _, part in elements:
        ids.extend(part)
    return ids


def _check(asked: Asked, prompt_tokens: int, settings: Settings) -> None:
    if settings.model is not None and asked.model != settings.model:
        raise Refusal(404, "model", f"the model `{asked.model}` does not exist; this server has `{settings.model}`")
    if settings.context_tokens is not None and prompt_tokens > settings.context_tokens:
        raise Refusal(400, "too_long", f"prompt is too long: {prompt_tokens} tokens > {settings.context_tokens} maximum")


def _fail_at_times(dialect: routes.Spoken, settings: Settings, serial: int) -> None:
    """The share of requests that `--fail` asks for, chosen by seed and number: the same in every run."""
    if random.Random(f"{settings.seed}:{serial}").random() < settings.fail_rate:  # noqa: S311 - a script, not a secret
        raise Refusal(529 if dialect.NAME == "anthropic_messages" else 503, "overloaded", "the server is overloaded (simulated)")


def reply_ids(prepared: Prepared, sent_tokens: int) -> Ids:
    """Ids of an answer's first tokens as the next request would carry them back: what a cache can hold of it."""
    reply = []
    for part in prepared.parts:
        text = "".join(part.pieces[:sent_tokens])
        if sent_tokens > 0:
            reply.append(Text(text) if part.tool is None else ToolCall(part.call_id, part.tool.name, text))
        sent_tokens -= len(part.pieces)
    return tokens.reply_ids(Call(reply=tuple(reply)), prepared.dialect.NAME)
