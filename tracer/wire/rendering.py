"""The text that a chat template would show for one element: what is counted and compared as prompt.

Same meaning, same text: string content reads like one text block, cache markers and ids of items leave no trace. Media, and thinking that
only its provider can read, stand as a short placeholder with a digest. Deterministic, and never raises.
"""

import hashlib
from collections.abc import Iterable

from tracer.wire.contract import Media, Message, Opaque, Part, Reasoning, Text, Tool, ToolCall, ToolResult


def message(found: Message) -> str:
    """A message: its role, then its parts, a line each."""
    return f"{found.role}\n{parts(found.parts)}\n"


def parts(found: Iterable[Part]) -> str:
    """Parts in order, a line each."""
    return "\n".join(map(part, found))


def part(found: Part) -> str:
    """One part."""
    match found:
        case Text(text):
            return text
        case Reasoning(text, opaque):
            return text or placeholder("reasoning", opaque or "")
        case ToolCall(_, name, arguments):
            return f"{name}({arguments})"
        case ToolResult(_, inner, _):
            return parts(inner)
        case Media(kind, _, source):
            return placeholder(kind, source)
        case Opaque(_, raw):
            return raw


def tool(found: Tool) -> str:
    """A tool's definition: name, description, schema, a line each, what is absent left out."""
    return "\n".join(line for line in (found.name, found.description, found.schema) if line) + "\n"


def placeholder(kind: str, source: str) -> str:
    """What stands for something that is no text."""
    return f"[{kind} {hashlib.sha256(source.encode('utf-8', 'replace')).hexdigest()[:16]}]"
