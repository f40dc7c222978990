"""OpenAI Responses requests: instructions, input items and tools as parts. Knows nothing of answers."""

from collections.abc import Iterator

from tracer.wire.contract import Media, Message, Opaque, Part, Reasoning, Text, Tool, ToolCall, ToolResult
from tracer.wire.json_values import Fields, Raw, array, as_text, begins, fields, present, string
from tracer.wire.requests import either

_ROLES = {"reasoning": "assistant", "compaction": "assistant"}


def prompt(body: Fields) -> tuple[Message, ...]:
    """Instructions, then the input items; items that only bring tools are left out."""
    instructions = string(body.get("instructions"))
    head = (Message("system", (Text(instructions),)),) if instructions else ()
    given = body.get("input")
    if begins(given) == b'"':
        return (*head, Message("user", (Text(string(given) or ""),)))
    return (*head, *(message(raw) for raw in array(given) if string(fields(raw).get("type")) != "additional_tools"))


def message(raw: Raw) -> Message:
    """One input item as a message of its own."""
    if begins(raw) == b'"':
        return Message("user", (Text(string(raw) or ""),))
    item = fields(raw)
    return Message(_role(item), item_parts(raw, item))


def _role(item: Fields) -> str:
    role, called = string(item.get("role")), string(item.get("type")) or ""
    if role:
        return role
    if called.endswith("_output"):
        return "tool"
    return "assistant" if called.endswith("_call") else _ROLES.get(called, "user")


def item_parts(raw: Raw, item: Fields) -> tuple[Part, ...]:
    """The parts of an item, of the input or of an answer."""
    match string(item.get("type")):
        case None | "message" | "agent_message":
            return content(item.get("content"))
        case "reasoning":
            return (Reasoning(_thoughts(item), string(item.get("encrypted_content"))),)
        case "function_call" | "custom_tool_call":
            return (_call(item),)
        case "function_call_output" | "custom_tool_call_output":
            return (ToolResult(string(item.get("call_id")), content(item.get("output"))),)
        case called:
            return (Opaque(called, as_text(raw)),)


def _thoughts(item: Fields) -> str:
    """The thinking itself where it is given, else its summary."""
    for key in ("content", "summary"):
        if texts := [string(fields(raw).get("text")) or "" for raw in array(item.get(key))]:
            return "\n".join(texts)
    return ""


def _call(item: Fields) -> ToolCall:
    ident = string(either(item, "call_id", "id"))
    return ToolCall(ident, string(item.get("name")) or "", string(either(item, "arguments", "input")) or "")


def content(raw: Raw | None) -> tuple[Part, ...]:
    """Content or output, a string or a list of parts."""
    if begins(raw) == b'"':
        return (Text(string(raw) or ""),)
    return tuple(_part(item) for item in array(raw)) if begins(raw) == b"[" else _opaque(raw)


def _opaque(raw: Raw | None) -> tuple[Part, ...]:
    return (Opaque("content", as_text(raw)),) if present(raw) else ()


def _part(raw: Raw) -> Part:
    block = fields(raw)
    called = string(block.get("type")) or ""
    match called:
        case "input_text" | "output_text" | "text" | "summary_text":
            return Text(string(block.get("text")) or "")
        case "refusal":
            return Text(string(block.get("refusal")) or "")
        case "reasoning_text":
            return Reasoning(string(block.get("text")) or "")
        case "input_image":
            return Media("image", None, _first(block, "image_url", "file_id"))
        case "input_file":
            return Media("document", None, _first(block, "file_data", "file_url", "file_id"))
        case "input_audio":
            return Media("audio", string(fields(block.get("input_audio")).get("format")), _first(fields(block.get("input_audio")), "data"))
        case _:
            return Opaque(called, as_text(raw))


def _first(block: Fields, *keys: str) -> str:
    return next((text for key in keys if (text := string(block.get(key)))), "")


def tools(body: Fields) -> tuple[Tool, ...]:
    """The tools, those that come as input items too, namespaces opened."""
    found = [tool for raw in array(body.get("tools")) for tool in opened(raw)]
    for raw in array(body.get("input")):
        item = fields(raw)
        if string(item.get("type")) == "additional_tools":
            found.extend(tool for inner in array(item.get("tools")) for tool in opened(inner))
    return tuple(found)


def opened(raw: Raw, deepest: int = 3) -> Iterator[Tool]:
    """One tool definition; of a namespace or an `additional_tools` item, the tools in it."""
    found = fields(raw)
    if deepest and string(found.get("type")) in ("namespace", "additional_tools"):
        for inner in array(found.get("tools")):
            yield from opened(inner, deepest - 1)
    else:
        yield _leaf(found)


def _leaf(found: Fields) -> Tool:
    schema = either(found, "parameters", "format")
    name = string(found.get("name")) or string(found.get("type")) or ""
    return Tool(name, string(found.get("description")), as_text(schema) if present(schema) else None)


def brings_tools(item: Raw) -> bool:
    """Whether an input item only brings tools: it counts as tools, but stands among what was said."""
    return b'"additional_tools"' in item and string(fields(item).get("type")) == "additional_tools"
