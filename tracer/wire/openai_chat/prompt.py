"""Chat Completions requests: tools and messages as parts. Knows nothing of answers."""

from tracer.wire.contract import Media, Message, Opaque, Part, Reasoning, Text, Tool, ToolCall, ToolResult
from tracer.wire.json_values import Fields, Raw, array, as_text, begins, fields, present, string
from tracer.wire.requests import either

_ROLES = {"function": "tool"}


def prompt(body: Fields) -> tuple[Message, ...]:
    """The messages in order."""
    return tuple(message(raw) for raw in array(body.get("messages")))


def message(raw: Raw) -> Message:
    """One message; a tool's is one tool result."""
    turn = fields(raw)
    role = string(turn.get("role")) or "user"
    role = _ROLES.get(role, role)
    if role == "tool":
        ident = either(turn, "tool_call_id", "name")
        return Message(role, (ToolResult(string(ident), content(turn.get("content"))),))
    return Message(role, parts(turn))


def parts(turn: Fields) -> tuple[Part, ...]:
    """What a message says: thinking, content, refusal, calls."""
    return (*_reasoning(turn), *content(turn.get("content")), *_refusal(turn), *_calls(turn))


def _reasoning(turn: Fields) -> tuple[Part, ...]:
    """Servers name it `reasoning_content` (DeepSeek, llama.cpp, vLLM) or `reasoning` (OpenRouter, newer vLLM)."""
    text = reasoning_text(turn)
    return (Reasoning(text),) if text else ()


def reasoning_text(turn: Fields) -> str | None:
    """The thinking in a message or a delta."""
    return string(turn.get("reasoning_content")) or string(turn.get("reasoning"))


def _refusal(turn: Fields) -> tuple[Part, ...]:
    text = string(turn.get("refusal"))
    return (Text(text),) if text else ()


def content(raw: Raw | None) -> tuple[Part, ...]:
    """Content, a string or a list of parts."""
    if begins(raw) == b'"':
        text = string(raw)
        return (Text(text),) if text else ()
    return tuple(_part(item) for item in array(raw))


def _part(raw: Raw) -> Part:
    block = fields(raw)
    called = string(block.get("type")) or ""
    match called:
        case "text" | "input_text" | "output_text" if begins(block.get("text")) == b'"':
            return Text(string(block["text"]) or "")
        case "refusal":
            return Text(string(block.get("refusal")) or "")
        case "thinking":
            return Reasoning(string(block.get("thinking")) or "", string(block.get("signature")))
        case "image_url":
            return Media("image", None, _source(block.get("image_url"), "url"))
        case "input_audio":
            return Media("audio", string(fields(block.get("input_audio")).get("format")), _source(block.get("input_audio"), "data"))
        case "file":
            return Media("document", None, _source(block.get("file"), "file_data") or _source(block.get("file"), "file_id"))
        case _:
            return Opaque(called, as_text(raw))


def _source(raw: Raw | None, key: str) -> str:
    return string(raw) or string(fields(raw).get(key)) or ""


def _calls(turn: Fields) -> tuple[Part, ...]:
    calls = tuple(_call(fields(raw)) for raw in array(turn.get("tool_calls")))
    if present(turn.get("function_call")):
        return (*calls, _named(None, fields(turn["function_call"])))
    return calls


def _call(call: Fields) -> ToolCall:
    return _named(string(call.get("id")), fields(either(call, "function", "custom")))


def _named(ident: str | None, function: Fields) -> ToolCall:
    given = either(function, "arguments", "input")
    arguments = string(given)
    return ToolCall(ident, string(function.get("name")) or "", as_text(given) if arguments is None else arguments)


def tools(body: Fields) -> tuple[Tool, ...]:
    """The tools, those of the older `functions` list too."""
    return tuple(tool(raw) for key in ("tools", "functions") for raw in array(body.get(key)))


def tool(raw: Raw) -> Tool:
    """One tool definition."""
    outer = fields(raw)
    found = fields(either(outer, "function", "custom")) or outer
    schema = either(found, "parameters", "format")
    name = string(found.get("name")) or string(outer.get("type")) or ""
    return Tool(name, string(found.get("description")), as_text(schema) if present(schema) else None)
