"""The canonical view of one prompt element: what two requests must share for one to go on from the other.

Knows the shapes in which the dialects write messages and items, and drops what varies without meaning (cache markers, item ids, a
string in place of one text block). Does not know exchanges, sessions or the store.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from tracer.wire import json_values

SHOWN_CHARACTERS = 4000
"""How much of a text's beginning, and again of its end, is kept for looking up: enough for a sub-agent's prompt, the head of a summary, the
latest words of a conversation that was written down for one."""

_MEANINGLESS = frozenset(("cache_control", "internal_chat_message_metadata_passthrough", "refusal", "annotations", "logprobs", "status"))
_TEXT_TYPES = frozenset(("text", "input_text", "output_text"))
_TOKEN_KEYS = frozenset(("signature", "thoughtSignature", "thought_signature", "encrypted_content"))
_SYSTEM_ITEMS = frozenset(("additional_tools", "configuration_update"))
_ITEMS_WITH_IDS = _SYSTEM_ITEMS | {"message", "reasoning", "compaction"}
_LEAST_TOKEN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One element as identity sees it.

    `texts`: its text blocks, shortened, tool results left out; `results`: what tools gave back; `calls` and `answers`: ids of the tool
    calls it makes and answers; `tokens`: every id and signature in it that only one answer can have given.
    """

    digest: bytes
    role: str
    type: str | None = None
    texts: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    tokens: frozenset[str] = frozenset()


def view(group: str, element: bytes) -> View:
    """Reads one element's canonical bytes; what is no JSON counts by its bytes alone."""
    if group == "tool":
        return View(digest=_digest(element), role="tool_definition")
    value = json_values.value(element)
    digest = _digest(_canonical(value) or element)
    if group == "system":
        said = value.get("content", value) if isinstance(value, dict) else value
        return View(digest=digest, role="system", texts=tuple(_texts(said)))
    if not isinstance(value, dict):
        return View(digest=digest, role="user", texts=tuple(_texts(value)))
    return _message(digest, value)


def _canonical(value: Any) -> bytes | None:
    """The value's meaning as bytes; None for what no parser or writer takes."""
    if value is None:
        return None
    try:
        return orjson.dumps(_meaning(value), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, RecursionError):
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _meaning(value: Any) -> Any:
    """The value without what varies between two sendings of the same thing."""
    if isinstance(value, list):
        return [_meaning(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _meaning(item) for key, item in value.items() if key not in _MEANINGLESS and item is not None and item != []}
    kind = kept.get("type")
    if not isinstance(kind, str):
        kind = None
    if kind in _TEXT_TYPES and set(kept) == {"type", "text"}:
        return {"text": kept["text"]}
    if "id" in kept and ("call_id" in kept or kind in _ITEMS_WITH_IDS):
        del kept["id"]
    for place in ("content", "output"):
        if isinstance(kept.get(place), str):
            kept[place] = [{"text": kept[place]}]
    return kept


def _message(digest: bytes, value: dict[str, Any]) -> View:
    kind = value.get("type") if isinstance(value.get("type"), str) else None
    role = _role(value, kind)
    blocks = value.get("content", value.get("parts"))
    tool_text = role == "tool" and blocks is not None
    found = _Found()
    found.item(value)
    return View(
        digest=digest,
        role=role,
        type=kind,
        texts=() if tool_text else tuple(_texts(blocks)),
        results=tuple(_texts(blocks)) if tool_text else tuple(found.results),
        calls=tuple(found.calls),
        answers=tuple(found.answers),
        tokens=frozenset(found.tokens),
    )


def _role(value: dict[str, Any], kind: str | None) -> str:
    """system, user, assistant or tool, whatever the dialect calls it."""
    role = value.get("role")
    if kind in _SYSTEM_ITEMS or role in ("system", "developer"):
        return "system"
    if role in ("assistant", "model"):
        return "assistant"
    if role in ("tool", "function") or (kind or "").endswith("_output"):
        return "tool"
    if kind in ("reasoning", "compaction") or (kind or "").endswith("_call"):
        return "assistant"
    return "user"


class _Found:
    """Collects the ids of one element; `seen` ends at a depth no message needs."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers: list[str] = []
        self.results: list[str] = []
        self.tokens: set[str] = set()

    def item(self, value: dict[str, Any]) -> None:
        kind = value.get("type")
        kind = kind if isinstance(kind, str) else ""
        if kind == "tool_use" or isinstance(value.get("functionCall"), dict):
            self._call(value.get("functionCall", value).get("id"))
        elif kind == "tool_result" or kind.endswith("_output"):
            self._answer(value.get("tool_use_id", value.get("call_id")), value.get("content", value.get("output")))
        elif isinstance(response := value.get("functionResponse"), dict):
            self._answer(response.get("id"), response.get("response"))
        elif kind.endswith("_call"):
            self._call(value.get("call_id"))
        elif "tool_call_id" in value:
            self._answer(value["tool_call_id"], None)
        for key in _TOKEN_KEYS & value.keys():
            self._token(value[key])
        for place in ("content", "parts", "tool_calls"):
            inner = value.get(place)
            for block in inner if isinstance(inner, list) else ():
                if isinstance(block, dict):
                    self._call(block.get("id")) if place == "tool_calls" else self.item(block)

    def _call(self, call_id: Any) -> None:
        if isinstance(call_id, str):
            self.calls.append(call_id)
            self._token(call_id)

    def _answer(self, call_id: Any, content: Any) -> None:
        if isinstance(call_id, str):
            self.answers.append(call_id)
            self._token(call_id)
        self.results.extend(_texts(content))

    def _token(self, token: Any) -> None:
        if isinstance(token, str) and len(token) >= _LEAST_TOKEN:
            self.tokens.add(token if len(token) <= 128 else _digest(token.encode("utf-8", "surrogatepass")).hex())


def _texts(value: Any, depth: int = 0) -> Iterable[str]:
    """The texts of a content: a string, a block, or a list of them."""
    if isinstance(value, str):
        yield value if len(value) <= 2 * SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}\n{value[-SHOWN_CHARACTERS:]}"
    elif isinstance(value, list) and depth < 3:
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict) and value.get("type") not in ("tool_result", "thinking", "reasoning"):
        for place in ("text", "parts", "output", "result"):
            if place in value and depth < 3:
                yield from _texts(value[place], depth + 1)


def token(text: str) -> str:
    """An id or signature as views hold it, for comparing with what an answer gave."""
    return text if len(text) <= 128 else _digest(text.encode("utf-8", "surrogatepass")).hex()
