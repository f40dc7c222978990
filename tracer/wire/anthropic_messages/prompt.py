"""Anthropic Messages requests: tools, system and messages as parts. Knows nothing of answers."""

from tracer.wire.contract import Media, Message, Opaque, Part, Reasoning, Text, Tool, ToolCall, ToolResult
from tracer.wire.json_values import Fields, Raw, array, as_text, begins, fields, is_true, present, string


def prompt(body: Fields) -> tuple[Message, ...]:
    """System and messages, in prompt order."""
    system = parts(body.get("system"))
    turns = [message(raw) for raw in array(body.get("messages"))]
    return ((Message("system", system), *turns)) if system else tuple(turns)


def message(raw: Raw) -> Message:
    """One message."""
    turn = fields(raw)
    return Message(string(turn.get("role")) or "user", parts(turn.get("content")))


def parts(raw: Raw | None) -> tuple[Part, ...]:
    """Content, a string or a list of blocks, as parts."""
    if begins(raw) == b'"':
        return (Text(string(raw) or ""),)
    return tuple(part(item) for item in array(raw))


def part(raw: Raw) -> Part:
    """One content block."""
    block = fields(raw)
    called = string(block.get("type")) or ""
    if called.endswith("_tool_result") or called == "tool_result":
        return ToolResult(string(block.get("tool_use_id")), _inner_parts(block), is_true(block.get("is_error")))
    if called.endswith("tool_use"):
        return ToolCall(string(block.get("id")), string(block.get("name")) or "", as_text(block.get("input")))
    match called:
        case "text" if begins(block.get("text")) == b'"':
            return Text(string(block["text"]) or "")
        case "thinking":
            return Reasoning(string(block.get("thinking")) or "", string(block.get("signature")))
        case "redacted_thinking":
            return Reasoning("", string(block.get("data")))
        case "image" | "document" if present(block.get("source")):
            return _media(called, fields(block["source"]))
        case _:
            return Opaque(called, as_text(raw))


def _inner_parts(block: Fields) -> tuple[Part, ...]:
    inner = block.get("content")
    if begins(inner) == b"{":
        return (Opaque("content", as_text(inner)),)
    return parts(inner)


def _media(called: str, source: Fields) -> Part:
    for key in ("data", "url", "file_id"):
        if begins(source.get(key)) == b'"':
            return Media(called, string(source.get("media_type")), string(source[key]) or "")
    return Media(called, string(source.get("media_type")), as_text(source.get("content")))


def tool(raw: Raw) -> Tool:
    """One tool definition; a server tool without name goes by its type."""
    found = fields(raw)
    schema = found.get("input_schema")
    name = string(found.get("name")) or string(found.get("type")) or ""
    return Tool(name, string(found.get("description")), as_text(schema) if present(schema) else None)
