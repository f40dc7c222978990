"""What the signs say: the client's name, and the ids of the session, of the agent that speaks and of the one that started it.

Knows how each agent names itself on the wire (docs/reference/identity.md). Does not know what was recorded before.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

type Signs = Mapping[str, str]

SESSION_IDS = (
    "header:x-claude-code-session-id",
    "body:user_id.session_id",
    "metadata:session_id",
    "header:x-session-id",
    "header:session-id",
    "header:session_id",
    "header:x-litellm-session-id",
    "header:openhands-conversation-id",
    "header:x-conversation-id",
    "header:conversation_id",
    "header:x-session-affinity",
    "body:metadata.session_id",
    "body:metadata.conversation_id",
    "system:session",
)
"""Where an id of the session stands, the most trusted first."""
_THREAD_IDS = ("header:x-claude-code-agent-id", "metadata:thread_id", "header:thread-id", "body:metadata.thread_id")
_PARENT_IDS = (
    "header:x-claude-code-parent-agent-id",
    "metadata:parent_thread_id",
    "metadata:x-codex-parent-thread-id",
    "header:x-codex-parent-thread-id",
)
_PARENT_SESSION = "header:x-parent-session-id"
_AGENT_TYPES = ("header:x-claude-code-agent-type", "metadata:agent_name", "header:x-openai-subagent", "metadata:x-openai-subagent")
_NAMES_AGENTS_TOO = frozenset(("header:x-claude-code-session-id", "header:x-session-id"))
"""Where a session's id stands beside that of the sub-agent: without one, the main agent speaks."""
_LEAST_CACHE_KEY = 16

_CLIENTS = (
    (re.compile(r"^claude-(?:cli|code)/", re.IGNORECASE), "claude-code"),
    (re.compile(r"^codex", re.IGNORECASE), "codex"),
    (re.compile(r"^opencode", re.IGNORECASE), "opencode"),
    (re.compile(r"^pi/", re.IGNORECASE), "pi"),
    (re.compile(r"^GeminiCLI", re.IGNORECASE), "gemini-cli"),
    (re.compile(r"^QwenCode", re.IGNORECASE), "qwen-code"),
    (re.compile(r"copilot", re.IGNORECASE), "copilot"),
    (re.compile(r"openhands", re.IGNORECASE), "openhands"),
    (re.compile(r"cline", re.IGNORECASE), "cline"),
)
_COMMANDS = (
    ("mini-swe-agent", "mini"),
    ("aider", "aider"),
    ("claude-code", "claude"),
    ("openhands", "openhands"),
    ("qwen-code", "qwen"),
    ("gemini-cli", "gemini"),
    ("opencode", "opencode"),
    ("codex", "codex"),
    ("copilot", "copilot"),
    ("cline", "cline"),
    ("pi", "pi"),
)
_PRODUCT = re.compile(r"[A-Za-z][\w.\-]*(?:/[A-Za-z][\w\-]*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Ids as they stand on the wire. `thread` None: the main agent where `complete`, else not told.

    `session` is that of the root; `own` an id of this request's session that may differ from it (a sub-agent's session of its own).
    """

    session: str | None = None
    own: str | None = None
    thread: str | None = None
    parent: str | None = None
    agent: str | None = None
    is_subagent: bool = False
    complete: bool = False
    source: str = "unknown"
    confidence: float = 0.0


def names(signs: Signs) -> Names:
    """The ids of one request. A sub-agent that has a session of its own names its parent's: that one is given as `session`."""
    where, own = _first(signs, SESSION_IDS)
    agent = _first(signs, _AGENT_TYPES)[1]
    parent_session = signs.get(_PARENT_SESSION)
    if own is not None and parent_session is not None and parent_session != own:
        return Names(
            session=parent_session, own=own, thread=own, parent=parent_session, agent=agent, is_subagent=True, complete=True,
            source="header", confidence=0.98,
        )  # fmt: skip
    thread, parent = _first(signs, _THREAD_IDS)[1], _first(signs, _PARENT_IDS)[1]
    told = Names(
        session=own,
        own=own,
        thread=None if thread == own else thread,
        parent=parent,
        agent=agent,
        is_subagent=_is_subagent(signs) or (thread is not None and thread != own),
        complete=where in _NAMES_AGENTS_TOO or thread is not None,
        source=where.partition(":")[0],
        confidence=0.9 if where.startswith("system") else 0.98,
    )
    return told if own is not None else _by_cache_key(signs, told)


def _by_cache_key(signs: Signs, told: Names) -> Names:
    """The prompt cache key, which most agents make per session, unless it looks like a name that many sessions share."""
    key = signs.get("body:prompt_cache_key", "")
    if len(key) < _LEAST_CACHE_KEY or not any(character.isdigit() for character in key):
        return Names(agent=told.agent, is_subagent=told.is_subagent)
    return Names(session=key, own=key, agent=told.agent, is_subagent=told.is_subagent, source="body", confidence=0.85)


def aliases(signs: Signs) -> tuple[str, ...]:
    """Every id of the session in one request, the most trusted first."""
    found = [value for name in (*SESSION_IDS, "body:prompt_cache_key") if (value := signs.get(name))]
    return tuple(dict.fromkeys(value for value in found if len(value) >= 8))


def is_partial(signs: Signs) -> bool:
    """Whether the request holds only what is new: its elements are no prompt."""
    return "body:previous_response_id" in signs or "body:previous_message_id" in signs


def _first(signs: Signs, wanted: tuple[str, ...]) -> tuple[str, str | None]:
    return next(((name, value) for name in wanted if (value := signs.get(name))), ("", None))


def _is_subagent(signs: Signs) -> bool:
    return "subagent" in signs.get("header:x-interaction-type", "") or signs.get("header:x-claude-code-request-class") == "subagent"


def client_name(signs: Signs) -> str | None:
    """The agent's name by what it says of itself, else by its command, else the first word of its user agent."""
    agent = signs.get("header:user-agent", "")
    for text in (agent, signs.get("header:originator", ""), signs.get("header:x-title", "")):
        for pattern, name in _CLIENTS:
            if pattern.search(text):
                return name
    if "header:x-interaction-type" in signs or "header:x-initiator" in signs:
        return "copilot"
    match = _PRODUCT.match(agent)
    return _by_command(signs.get("origin:command", "")) or (match[0].lower() if match else None)


def _by_command(command: str) -> str | None:
    """The agent whose program stands among the first words of a command line, path and interpreter aside."""
    words = [re.split(r"[/\\]", word)[-1].removesuffix(".exe") for word in command.split()[:3]]
    for name, program in _COMMANDS:
        if program in words or name in words:
            return name
    return None
