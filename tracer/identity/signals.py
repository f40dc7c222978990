"""Every raw sign of who sent a request, from its headers, its URL and the small fields of its body; and the client's name.

All of it is stored as found; what is chosen from it, and how sure that is, is decided elsewhere. Values that redaction turned into keyed
fingerprints still serve: equal stays equal. Knows the names that agents give their ids, not what follows from them.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from storage.records import REDACTED, Exchange, Transport

type Signals = tuple[tuple[str, str], ...]

_HEADERS = frozenset(
    (
        "user-agent", "originator", "x-title", "http-referer", "x-service-name", "session-id", "session_id", "thread-id", "conversation_id",
        "openhands-conversation-id", "x-claude-1p-request-class", "x-client-request-id", "x-codex-parent-thread-id",
        "x-codex-turn-metadata", "x-codex-window-id", "x-initiator", "x-interaction-type", "x-litellm-session-id", "x-openai-subagent",
        "x-parent-session-id", "x-session-affinity", "x-session-id", "x-stainless-retry-count", "x-playhead-label", "x-recorder-run",
        "x-conversation-id",
    )
)  # fmt: skip
_HEADER_PREFIXES = ("x-claude-code-",)
_METADATA = ("session_id", "thread_id", "parent_thread_id", "turn_id", "parent_turn_id", "root_turn_id", "request_kind", "window_id")
_METADATA_MORE = ("history_initialization", "subagent_kind", "agent_name", "thread_source")
_OF_ONE_REQUEST = ("request_kind", "turn_id", "parent_turn_id", "root_turn_id", "window_id", "history_initialization")
_SESSION_FOLDER = re.compile(r"session[-_]?(?:state|folder|dir)?s?[/\\]([0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})")
_OLD_USER_ID = re.compile(r"_session_([0-9a-fA-F-]{36})$")
_LONGEST = 4096


def signals(exchange: Exchange, fields: Mapping[str, Any], system_texts: tuple[str, ...]) -> Signals:
    """(name, value) of every sign; `fields`: the body's top-level fields without its elements; names are `where:name`.

    What a body says beats the headers: those of a WebSocket are the upgrade's and hold for its first message at most.
    """
    found: dict[str, str] = {}
    for name, value in exchange.request.headers:
        low = name.lower()
        if low in _HEADERS or low.startswith(_HEADER_PREFIXES):
            found.setdefault(f"header:{low}", value)
    _body(found, fields)
    _turn_metadata(found, found.get("header:x-codex-turn-metadata"))
    if exchange.transport is Transport.WS and "client_metadata" not in fields:
        for name in _OF_ONE_REQUEST:  # the upgrade's, of long ago
            found.pop(f"metadata:{name}", None)
    for text in system_texts:
        if match := _SESSION_FOLDER.search(text):
            found.setdefault("system:session", match[1])
    origin = exchange.origin
    for key, sign in (("label", origin.label), ("pid", origin.client_pid), ("command", origin.client_command), ("conn", origin.connection)):
        if sign is not None:
            found[f"origin:{key}"] = str(sign)
    return tuple((name, value[:_LONGEST]) for name, value in found.items() if value and value != REDACTED)


def _body(found: dict[str, str], fields: Mapping[str, Any]) -> None:
    for key in ("prompt_cache_key", "previous_response_id", "conversation", "user", "safety_identifier"):
        if isinstance(value := fields.get(key), str):
            found[f"body:{key}"] = value
    if fields.get("generate") is False:
        found["body:generate"] = "false"
    if fields.get("tool_choice") == "none":
        found["body:tool_choice"] = "none"
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        _user_id(found, metadata.get("user_id"))
        for key in ("session_id", "conversation_id", "thread_id"):
            if isinstance(value := metadata.get(key), str):
                found[f"body:metadata.{key}"] = value
    client = fields.get("client_metadata")
    if isinstance(client, dict):
        _turn_metadata(found, client.get("x-codex-turn-metadata"))
        for key, value in client.items():
            if isinstance(value, str) and value and key != "x-codex-turn-metadata":
                found.setdefault(f"metadata:{key}", value)
    thread = fields.get("thread")
    if isinstance(thread, dict) and isinstance(value := thread.get("previous_message_id"), str):
        found["body:previous_message_id"] = value
    _diagnostics(found, fields.get("diagnostics"))


def _diagnostics(found: dict[str, str], value: Any) -> None:
    """Claude Code's first-party form names the message before; it is evidence only, the request still holds the whole conversation."""
    if isinstance(value, dict) and isinstance(before := value.get("previous_message_id"), str):
        found["body:diagnostics.previous_message_id"] = before


def _user_id(found: dict[str, str], user_id: Any) -> None:
    """Claude Code: a JSON object in a string; before that `user_..._session_UUID`."""
    if not isinstance(user_id, str):
        return
    if match := _OLD_USER_ID.search(user_id):
        found["body:user_id.session_id"] = match[1]
        return
    try:
        inner = orjson.loads(user_id)
    except orjson.JSONDecodeError:
        return
    if isinstance(inner, dict) and isinstance(session := inner.get("session_id"), str):
        found["body:user_id.session_id"] = session


def _turn_metadata(found: dict[str, str], text: Any) -> None:
    """Codex: a JSON object in a header or in `client_metadata`."""
    if not isinstance(text, str):
        return
    try:
        inner = orjson.loads(text)
    except orjson.JSONDecodeError:
        return
    for key in (*_METADATA, *_METADATA_MORE) if isinstance(inner, dict) else ():
        if isinstance(value := inner.get(key), str) and value:
            found.setdefault(f"metadata:{key}", value)
