"""What a call is for: a turn of the conversation, or one of the calls that an agent makes on the side.

Decided by what the wire says (paths, headers, fields), else by the texts with which agents make such calls, else by wording that such
calls share. Does not know sessions. The texts are those of docs/reference/identity.md.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from tracer.identity.canonical import View

THREAD_KINDS = frozenset(("turn", "memory", "prewarm"))
"""Kinds that carry a conversation on; all others are asked on the side and answered once."""

_REQUEST_KINDS = {"prewarm": "prewarm", "compaction": "compaction", "turn": "turn", "memory": "memory", "title": "title"}
_SUBAGENTS = {"compact": "compaction", "memory_consolidation": "memory"}
"""Codex's sub-agents that it runs by itself, by the name it gives them."""
_HEAD = 600

_TEXTS = (
    ("compaction", "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."),
    ("title", "You are naming a coding session so the user can pick it out"),
    ("title", "You are a title generator. You output ONLY a thread title."),
    ("title", "Generate a title for this conversation:"),
    ("compaction", "You are a context summarization agent."),
    ("compaction", "Here is the conversation so far:"),
    ("compaction", "You are a context summarization assistant."),
    ("compaction", "You are performing a CONTEXT CHECKPOINT COMPACTION."),
    ("router", "You are a specialized Task Routing AI."),
    ("compaction", "You are a specialized system component responsible for distilling"),
    ("compaction", "Generate a new <state_snapshot> based on the provided history."),
    ("compaction", "A previous <state_snapshot> exists in the history."),
    ("compaction", "Critically evaluate the <state_snapshot> you just generated."),
    ("compaction", "You are the component that summarizes a conversation when"),
    ("memory", "You are now acting as the managed memory extraction subagent"),
    ("compaction", "Please create a detailed summary of the conversation so far."),
    ("commit_message", "You are an expert software engineer that generates concise,"),
    ("compaction", "*Briefly* summarize this partial conversation about programming."),
    ("compaction", "You are maintaining a context-aware state summary"),
)
MARKS = tuple(mark for _, mark in _TEXTS)
"""The texts by which agents' own calls are known."""
_WORDING = (
    (
        "title",
        re.compile(
            r"(?is)\b(?:generat|creat|writ|produc|nam|summari)\w*\b.{0,60}\b(?:title|name)\b.{0,60}\b(?:conversation|chat|session|thread)"
        ),
    ),
    ("commit_message", re.compile(r"(?is)\b(?:generat|creat|writ|produc)\w*\b.{0,80}\bcommit messages?\b")),
    ("compaction", re.compile(r"(?is)\b(?:summari[sz]|compact|condens)\w*\b.{0,80}\b(?:conversation|chat history|session|context|dialog)")),
    ("router", re.compile(r"(?is)\b(?:rout|classif)\w*\b.{0,80}\b(?:task|request|query|prompt|model)\b.{0,80}\b(?:complex|model|simple)")),
)
_SCHEMAS = ("response_format", "text", "generationConfig", "generation_config", "output_config", "output_format")
"""Fields of a body in which dialects ask for JSON of a schema."""
_ANSWERS = (("title", "title"), ("commit_message", "commit"), ("router", "complexity"), ("router", "model_choice"))
_CONTINUATION = ("The connection dropped mid-response. Resume directly",)


def kind(path: str, signs: Mapping[str, str], views: Sequence[View], settings: Mapping[str, object]) -> str:
    """The kind of a model call; `path`: of its URL; `views`: its elements in prompt order."""
    return _by_wire(path, signs, views, settings) or _by_text(views) or _by_schema(views, settings) or "turn"


def offers_tools(views: Sequence[View], settings: Mapping[str, object]) -> bool:
    """Whether the model may call tools."""
    given = any(view.role == "tool_definition" or view.type == "additional_tools" for view in views)
    return given and settings.get("tool_choice") not in ("none", {"type": "none"})


def is_continuation(view: View) -> bool:
    """Whether an agent asks the model to go on after a broken stream."""
    return any(mark in text[:_HEAD] for text in view.texts for mark in _CONTINUATION)


def _by_wire(path: str, signs: Mapping[str, str], views: Sequence[View], settings: Mapping[str, object]) -> str | None:
    if path.endswith(("/count_tokens", ":countTokens", "/input_tokens")):
        return "count_tokens"
    if path.endswith("/responses/compact"):
        return "compaction"
    if signs.get("body:generate") == "false":
        return "prewarm"
    if views and views[-1].type == "compaction_trigger":
        return "compaction"
    if "compaction" in signs.get("header:x-interaction-type", "") or signs.get("header:x-claude-code-request-class") == "compaction":
        return "compaction"
    for sign in ("metadata:x-openai-subagent", "header:x-openai-subagent"):
        if signs.get(sign) in _SUBAGENTS:
            return _SUBAGENTS[signs[sign]]
    named = _REQUEST_KINDS.get(signs.get("metadata:request_kind", ""))
    if named not in (None, "turn"):
        return named
    if settings.get("max_tokens") == 1 and _last_texts(views) == ("quota",):
        return "side"
    if signs.get("header:x-claude-code-request-class") == "auxiliary":
        return _by_text(views) or _by_schema(views, settings) or "side"
    return None


def _by_text(views: Sequence[View]) -> str | None:
    """By the heads of the system prompt and of what was said last; wording decides only where no tool is offered."""
    heads = [text.lstrip()[:_HEAD] for text in (*system_texts(views), *_last_texts(views))]
    for name, mark in _TEXTS:
        if any(mark in head for head in heads):
            return name
    if any(view.role in ("tool_definition", "tool", "assistant") for view in views):
        return None
    system = [text.lstrip()[:_HEAD] for text in system_texts(views)]
    for name, wording in _WORDING:
        if any(wording.search(head) for head in system):
            return name
    return None


def _by_schema(views: Sequence[View], settings: Mapping[str, object]) -> str | None:
    """By what the answer must hold, where no tool is offered: agents' own questions are often answered in JSON."""
    if any(view.role == "tool_definition" for view in views):
        return None
    names = {name.lower() for place in _SCHEMAS for name in _properties(settings.get(place))}
    return next((kind for kind, part in _ANSWERS if any(part in name for name in names)), None)


def _properties(value: object, depth: int = 0) -> Iterator[str]:
    """The names of the members that a JSON schema, somewhere in this value, asks for."""
    if not isinstance(value, Mapping) or depth > 4:
        return
    properties = value.get("properties")
    if isinstance(properties, Mapping):
        yield from (name for name in properties if isinstance(name, str))
        return
    for inner in value.values():
        yield from _properties(inner, depth + 1)


def system_texts(views: Sequence[View]) -> tuple[str, ...]:
    """The texts of the leading system elements."""
    found: list[str] = []
    for view in views:
        if view.role == "tool_definition":
            continue
        if view.role != "system":
            break
        found.extend(view.texts)
    return tuple(found)


def _last_texts(views: Sequence[View]) -> tuple[str, ...]:
    """The texts of the last element that is no system notice, when the model did not say it."""
    for view in reversed(views):
        if view.role == "assistant":
            return ()
        if view.role != "system":
            return view.texts
    return ()
