"""Asks a target what it is before a run, and its engine what it has counted before and after. The one module that uses httpx: nothing
here is timed.

Polite: a few GETs at once, answered in 1.5 s or not at all; a hosted API (https to a public host) is asked for its models alone. It
never fails a run: what does not answer, or answers something else, is None. What is kept is a short list of known fields: servers tell
their keys and folders too.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from replay import edits, exposition, sender, served
from replay.exposition import Sample
from replay.served import Counted
from storage.records import Headers, Request

if TYPE_CHECKING:
    import httpx

PATIENCE_S = 1.5
LARGEST_BYTES = 4 << 20
LONGEST_TEXT = 200
MOST_MODELS = 20

_OWN_NETWORK = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".test")
_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama_cpp", "tensorrt_llm": "tensorrt_llm"}
"""Who a list of models says they are owned by, and the engine that says so."""

_OWN_PAGES = {"version": "version", "info": "get_server_info", "props": "props", "metrics": "metrics"}
"""vLLM's, SGLang's, llama.cpp's, and the counters of all."""

_CACHE_INFO = ("vllm:cache_config_info", "sglang:cache_config_info")
_FLAGS = (
    "block_size", "enable_prefix_caching", "cache_dtype", "num_gpu_blocks", "gpu_memory_utilization", "page_size", "disable_radix_cache",
    "enable_cache_report", "mem_fraction_static", "max_total_num_tokens", "context_length", "tp_size", "dp_size", "dtype", "quantization",
    "kv_cache_dtype", "attention_backend", "schedule_policy", "chunked_prefill_size", "total_slots", "n_ctx",
)  # fmt: skip
"""What is kept of all that an engine says of its settings: what bears on reuse and speed, and no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that the target lists. `longest`: tokens of context, where it says so."""

    id: str
    longest: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a target said of itself; None where it said nothing. `counted`: its counters at that moment."""

    server: str | None = None
    """Its `Server` header."""
    engine: str | None = None
    version: str | None = None
    models: tuple[Model, ...] | None = None
    flags: tuple[tuple[str, str | float], ...] = ()
    counted: Counted | None = None


@dataclass(frozen=True, slots=True)
class _Visit:
    """A client, and the loop's time at which it has to be done."""

    client: "httpx.AsyncClient"
    until: float


@dataclass(frozen=True, slots=True)
class _Page:
    """An answer with status 200, and the server's name for itself."""

    body: bytes
    server: str | None

    def json(self) -> dict[str, Any]:
        """The document; empty when it is none."""
        try:
            said = orjson.loads(self.body)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


def is_hosted(target: str) -> bool:
    """Whether a target is an API that others run: https to a public host. Nothing is looked up."""
    parts = urlsplit(target)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return False
    try:
        return ip_address(host).is_global
    except ValueError:
        return "." in host and not host.endswith(_OWN_NETWORK)


def found(target: str, headers: Headers = ()) -> Found:
    """What the target says of itself. `headers` carry its key. Never raises for what a server does; takes 1.5 s at most."""
    return asyncio.run(_found(target, headers))


def counted(target: str, headers: Headers = ()) -> Counted | None:
    """The engine's counters now; None where there are none."""
    return asyncio.run(_counted(target, headers))


async def _found(target: str, headers: Headers) -> Found:
    root = _root(target)
    urls = {"models": edits.addressed(Request(method="GET", url="http://any/v1/models", headers=(), body=b""), target)}
    if not is_hosted(target):
        urls |= {name: f"{root}/{path}" for name, path in _OWN_PAGES.items()}
    async with _client(target, headers) as client:
        visit = _Visit(client, asyncio.get_running_loop().time() + PATIENCE_S)
        pages = dict(zip(urls, await asyncio.gather(*[_get(visit, url) for url in urls.values()]), strict=True))
        samples = await _samples(visit, root, pages.pop("metrics", None))
    return _said(pages, samples)


async def _counted(target: str, headers: Headers) -> Counted | None:
    root = _root(target)
    async with _client(target, headers) as client:
        visit = _Visit(client, asyncio.get_running_loop().time() + PATIENCE_S)
        return served.counted(await _samples(visit, root, await _get(visit, f"{root}/{_OWN_PAGES['metrics']}")))


async def _samples(visit: _Visit, root: str, metrics: _Page | None) -> tuple[Sample, ...]:
    """The page of counters; TensorRT-LLM has something else at `/metrics`, and these at `/prometheus/metrics`."""
    if metrics is None:
        return ()
    page = exposition.samples(metrics.body.decode(errors="replace"))
    if page:
        return page
    other = await _get(visit, f"{root}/prometheus/metrics")
    return () if other is None else exposition.samples(other.body.decode(errors="replace"))


def _root(target: str) -> str:
    """Where a server's own pages stand: the base URL without the API's version."""
    return target.rstrip("/").removesuffix("/v1")


def _client(target: str, headers: Headers) -> "httpx.AsyncClient":
    import httpx

    # Making the real context takes 30 ms; where there is no TLS, one that trusts nobody will do.
    tls = sender.tls_context() if urlsplit(target).scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    told = [("User-Agent", "playhead"), ("Accept-Encoding", "identity"), *headers]
    encoded = [(name.encode("latin-1", "replace"), value.encode("latin-1", "replace")) for name, value in told]
    # A step that hangs is given up before the whole is: httpx leaves a socket open when it is cancelled in a handshake.
    return httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=0.8 * PATIENCE_S, verify=tls, headers=encoded)


async def _get(visit: _Visit, url: str) -> _Page | None:
    """A page, or None: whatever goes wrong here is no reason not to replay."""
    import httpx

    try:
        async with asyncio.timeout_at(visit.until), visit.client.stream("GET", url) as answer:
            body = bytearray()
            # Raw: no compression was asked for, and nothing that is unpacked can be larger than what came.
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > LARGEST_BYTES:
                    return None
            return _Page(bytes(body), _text(answer.headers.get("server"))) if answer.status_code == httpx.codes.OK else None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return None


def _said(pages: Mapping[str, _Page | None], samples: tuple[Sample, ...]) -> Found:
    """All pages together."""
    known = {name: page for name, page in pages.items() if page is not None}
    said = {name: known[name].json() if name in known else {} for name in ("models", *_OWN_PAGES)}
    now = served.counted(samples)
    return Found(
        server=next((page.server for page in known.values() if page.server), None),
        engine=now.engine if now is not None else _engine(said),
        version=_text(said["version"].get("version")) or _text(said["info"].get("version")) or _text(said["props"].get("build_info")),
        models=_models(said["models"]),
        flags=_flags(said, samples),
        counted=now,
    )


def _engine(said: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The engine by what only it says, where there are no counters."""
    if "build_info" in said["props"]:
        return "llama_cpp"
    if "disable_radix_cache" in said["info"]:
        return "sglang"
    owners = [item.get("owned_by") for item in _items(said["models"])]
    return next((_OWNERS[owner] for owner in owners if isinstance(owner, str) and owner in _OWNERS), None)


def _items(listed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of a list of models: OpenAI's and Anthropic's `data`, Gemini's `models`."""
    entries = listed.get("data", listed.get("models"))
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _models(listed: Mapping[str, Any]) -> tuple[Model, ...] | None:
    named = [(_text(item.get("id")) or _text(item.get("name")), item) for item in _items(listed)]
    found = tuple(Model(id=name, longest=_longest(item)) for name, item in named if name is not None)
    return found[:MOST_MODELS] or None


def _longest(item: Mapping[str, Any]) -> int | None:
    meta = item.get("meta")
    said = item.get("max_model_len", meta.get("n_ctx") if isinstance(meta, dict) else None)
    return said if isinstance(said, int) and not isinstance(said, bool) else None


def _flags(said: Mapping[str, Mapping[str, Any]], samples: tuple[Sample, ...]) -> tuple[tuple[str, str | float], ...]:
    """The settings in _FLAGS, from wherever the engine tells them."""
    told: dict[str, Any] = {}
    for sample in samples:
        if sample.name in _CACHE_INFO:
            told |= dict(sample.labels)
    generation = said["props"].get("default_generation_settings")
    for page in (said["info"], generation if isinstance(generation, dict) else {}, said["props"]):
        told |= page
    kept = [(name, told[name]) for name in _FLAGS if isinstance(told.get(name), str | int | float)]
    return tuple((name, value[:LONGEST_TEXT] if isinstance(value, str) else value) for name, value in kept)


def _text(value: object) -> str | None:
    """A string of a server, not too long of one; None for anything else."""
    return value[:LONGEST_TEXT] if isinstance(value, str) and value else None


def document(found: Found) -> dict[str, Any]:
    """As it is stored with the run's settings."""
    models = None if found.models is None else [{"id": model.id, "max_model_len": model.longest} for model in found.models]
    return {"engine": found.engine, "version": found.version, "server": found.server, "models": models, "flags": dict(found.flags)}
