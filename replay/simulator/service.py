"""The model behind the server: looks prompts up in the cache, says when each piece of an answer is due, keeps the counts and the truth.

It is told when things happen and has no socket, thread or timer of its own.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import orjson

from replay.simulator import metrics, routes
from replay.simulator.cache import Lease, PrefixCache
from replay.simulator.dialects import gemini, openai_responses
from replay.simulator.prepare import Prepared, Received, Settings, decoded, prompt_ids, reply_ids
from replay.simulator.truth import Row, Truth
from replay.simulator.values import Answer, Event, Json, Refusal
from replay.simulator.wording import packed
from tracer import tokens
from tracer.clock import Clock

JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole answer, sent at once."""

    status: int = 200
    content_type: str = JSON
    body: bytes = b""


@dataclass(slots=True, kw_only=True)
class Sending:
    """An answer on its way: what is due when. `tokens_sent` and `row` are filled in by whoever sends."""

    content_type: str
    streamed: bool
    due: list[tuple[int, bytes, int]]
    """CLOCK_MONOTONIC ns, bytes of the body, output tokens that are out once they are sent. Ascending."""
    prepared: Prepared
    lease: Lease
    row: Row
    tokens_sent: int = 0
    chunk_ns: list[int] = field(default_factory=list)


class Service:
    """One simulated model server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cache = PrefixCache(block_tokens=settings.block_tokens, capacity_tokens=settings.capacity_tokens, ttl_ns=settings.ttl_ns)
        self.counts = metrics.Counts()
        self.truth = Truth(settings.truth)
        self._clock = Clock()

    def page(self, received: Received) -> Page:
        """The server's own pages; 404 in the shape of the path's dialect for what there is none of."""
        path, _ = routes.parted(received.target)
        if received.header("upgrade"):
            # 426 makes Codex fall back to HTTP at once; a 404 costs it seven tries.
            return Page(
                status=426, body=packed({"error": {"message": "this server has no WebSocket here", "type": "invalid_request_error"}})
            )
        try:
            return self._own(received.method, path, received)
        except Refusal as refusal:
            return self.refused(received, refusal)

    def _own(self, method: str, path: str, received: Received) -> Page:
        match method, path:
            case (("GET" | "HEAD"), ("/health" | "/")):
                return Page(body=packed({"status": "ok"}))
            case (("GET" | "HEAD"), "/metrics"):
                return Page(content_type=PROMETHEUS, body=self._metrics())
            case "GET", ("/v1/models" | "/models"):
                return Page(body=packed(self._models()))
            case "GET", "/v1beta/models":
                return Page(body=packed({"models": [{"name": f"models/{self._model}", "displayName": self._model}]}))
            case "POST", "/reset_prefix_cache":
                self.cache.clear()
                return Page()
            case "POST", "/tokenize":
                return Page(body=packed(self._tokenized(received)))
        raise Refusal(404, "not_found", f"there is nothing at {method} {path}")

    @property
    def _model(self) -> str:
        return self.settings.model or "simulated"

    def _models(self) -> Json:
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "playhead", "max_model_len": self.settings.context_tokens}
        return {"object": "list", "data": [{**model, "type": "model", "display_name": self._model}], "has_more": False}

    def _metrics(self) -> bytes:
        return metrics.exposition(
            self.counts, rules=self.settings.rules, held_tokens=self.cache.held_tokens, usage=self.cache.usage
        ).encode()

    def _tokenized(self, received: Received) -> Json:
        """vLLM's shape: of `prompt`, or of `messages` and `tools` as a chat request has them."""
        try:
            body = orjson.loads(decoded(received))
        except ValueError as error:
            raise Refusal(400, "invalid", f"the body is not JSON: {error}") from None
        text = body.get("prompt") if isinstance(body, dict) else None
        ids = tokens.text_ids(text) if isinstance(text, str) else prompt_ids(received, "/v1/chat/completions")
        return {"count": len(ids), "max_model_len": self.settings.context_tokens, "tokens": list(ids), "token_strs": None}

    def refused(self, received: Received, refusal: Refusal) -> Page:
        """An error, in the shape of the path's dialect; a refused model call is counted and logged."""
        path, _ = routes.parted(received.target)
        dialect = routes.dialect_of(path)
        if dialect is not None and received.method == "POST":
            self.counts.end(refusal.status)
            self.truth.write(_row(received, dialect.NAME, None, refusal.status))
        body = routes.refusing(path).refusal(refusal.status, refusal.reason, str(refusal))
        return Page(status=refusal.status, body=body)

    def begin(self, received: Received, prepared: Prepared) -> Sending | Page:
        """Looks the prompt up as of when the request was whole, and lays out the answer in time. Token counts are answered at once."""
        if prepared.asked.counts_only:
            return self._counted(received, prepared)
        lease = self.cache.lookup((prepared.asked.model, prepared.asked.salt or ""), prepared.ids, received.whole_ns)
        uncached = len(prepared.ids) - lease.cached_tokens
        self.cache.prefill(lease, received.whole_ns + self.settings.timing.first_token_ns(uncached))
        self.counts.prompt_tokens += len(prepared.ids)
        self.counts.cached_tokens += lease.cached_tokens
        self.counts.running += 1
        answer = self._answer(prepared, lease.cached_tokens, received.whole_ns)
        row = _row(received, prepared.dialect.NAME, prepared.asked.model, 200)
        row.prompt_tokens, row.cached_tokens = len(prepared.ids), lease.cached_tokens
        streamed = prepared.asked.streamed
        return Sending(
            content_type="text/event-stream; charset=utf-8" if streamed and prepared.asked.framing == "sse" else JSON,
            streamed=streamed,
            due=list(self._due(prepared, answer, received.whole_ns, uncached)),
            prepared=prepared,
            lease=lease,
            row=row,
        )

    def _counted(self, received: Received, prepared: Prepared) -> Page:
        row = _row(received, prepared.dialect.NAME, prepared.asked.model, 200)
        row.prompt_tokens = len(prepared.ids)
        self.counts.end(200)
        self.truth.write(row)
        counted = {"totalTokens": len(prepared.ids)} if prepared.dialect is gemini else {"input_tokens": len(prepared.ids)}
        return Page(body=packed(counted))

    def _answer(self, prepared: Prepared, cached: int, now_ns: int) -> Answer:
        return Answer(
            name=prepared.name,
            model=prepared.asked.model,
            parts=prepared.parts,
            stop=prepared.stop,
            prompt=len(prepared.ids),
            cached=cached if self.settings.reports_cached else None,
            output=prepared.output_tokens,
            reports_usage=prepared.asked.reports_usage,
            created_s=self._clock.unix_ns(now_ns) // 10**9,
        )

    def _due(self, prepared: Prepared, answer: Answer, whole_ns: int, uncached: int) -> Iterator[tuple[int, bytes, int]]:
        """Opening events at once, each token at its time, what follows a token with it; unstreamed answers with the last token."""
        timing = self.settings.timing
        if not prepared.asked.streamed:
            last = max(0, answer.output - 1)
            yield whole_ns + timing.token_ns(uncached, last), prepared.dialect.whole(answer), answer.output
            return
        at, out = whole_ns, 0
        events = self._events(prepared, answer)
        for event in events:
            if event.token is not None:
                at, out = whole_ns + timing.token_ns(uncached, event.token), event.token + 1
            elif not answer.output and event is events[-1]:  # nothing is generated: it ends when the prompt is there
                at = whole_ns + timing.first_token_ns(uncached)
            yield at, event.data, out

    def _events(self, prepared: Prepared, answer: Answer) -> list[Event]:
        events = prepared.dialect.events(answer)
        if prepared.asked.framing == "messages":
            return openai_responses.as_messages(events)
        return gemini.as_array(events) if prepared.asked.framing == "array" and prepared.dialect is gemini else events

    def end(self, sending: Sending, now_ns: int) -> None:
        """All was sent, or the client left before: the cache keeps what was computed, the truth what was sent."""
        left = len(sending.chunk_ns) < len(sending.due)
        if sending.tokens_sent:
            self.cache.finish(sending.lease, reply_ids(sending.prepared, sending.tokens_sent), now_ns)
        else:
            self.cache.abandon(sending.lease, now_ns)
        self.counts.output_tokens += sending.tokens_sent
        self.counts.running -= 1
        self.counts.end(499 if left else 200)
        row = replace(sending.row, output_tokens=sending.tokens_sent, chunk_ns=sending.chunk_ns, client_left=left)
        self.truth.write(row)


def _row(received: Received, dialect: str, model: str | None, status: int) -> Row:
    return Row(
        request_sha256=hashlib.sha256(received.body).hexdigest(),
        dialect=dialect,
        model=model,
        status=status,
        received_ns=received.received_ns,
        whole_ns=received.whole_ns,
    )
