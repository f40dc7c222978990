"""Gemini requests: tools, system instruction and contents as parts. Knows nothing of answers.

Google takes members in camelCase and in snake_case.
"""

from collections.abc import Iterator

from tracer.wire.contract import Media, Message, Opaque, Part, Reasoning, Text, Tool, ToolCall, ToolResult
from tracer.wire.json_values import Fields, Raw, array, as_text, begins, fields, is_true, present, string
from tracer.wire.requests import either

_ROLES = {"model": "assistant", "function": "tool"}


def prompt(body: Fields) -> tuple[Message, ...]:
    """The system instruction, then the contents."""
    system = either(body, "systemInstruction", "system_instruction")
    head = (Message("system", parts(fields(system))),) if present(system) else ()
    return (*head, *(message(raw) for raw in array(body.get("contents"))))


def message(raw: Raw) -> Message:
    """One content; one that holds only function results is a tool's."""
    content = fields(raw)
    found = parts(content)
    role = string(content.get("role")) or "user"
    if found and all(isinstance(part, ToolResult) for part in found):
        role = "tool"
    return Message(_ROLES.get(role, role), found)


def parts(content: Fields) -> tuple[Part, ...]:
    """The parts of a content, of a request or of a candidate; a list, or one alone."""
    given = content.get("parts")
    each = [given] if given is not None and begins(given) == b"{" else array(given)
    return tuple(part for raw in each for part in _part(raw))


def _part(raw: Raw) -> Iterator[Part]:
    """One part; a thought signature beside content is a part of its own, to be carried unchanged."""
    block = fields(raw)
    signature = string(either(block, "thoughtSignature", "thought_signature"))
    text = string(block.get("text"))
    if is_true(block.get("thought")):
        yield Reasoning(text or "", signature)
        return
    if signature:
        yield Reasoning("", signature)
    if text is not None:
        if text or not signature:
            yield Text(text)
        return
    yield _other(raw, block)


def _other(raw: Raw, block: Fields) -> Part:
    if call := fields(either(block, "functionCall", "function_call")):
        arguments = call.get("args")
        return ToolCall(string(call.get("id")), string(call.get("name")) or "", as_text(arguments) if present(arguments) else "{}")
    if result := fields(either(block, "functionResponse", "function_response")):
        ident = string(result.get("id")) or string(result.get("name"))
        return ToolResult(ident, _result(result))
    inline, file = fields(either(block, "inlineData", "inline_data")), fields(either(block, "fileData", "file_data"))
    if inline or file:
        mime = string(either(inline or file, "mimeType", "mime_type"))
        source = string(inline.get("data")) or string(either(file, "fileUri", "file_uri")) or ""
        return Media((mime or "media").partition("/")[0], mime, source)
    return Opaque(next(iter(block), ""), as_text(raw))


def _result(result: Fields) -> tuple[Part, ...]:
    """The response object as JSON text; the text alone when it is `{"output": text}`, as agents send it."""
    response = result.get("response")
    inside = fields(response)
    only = string(inside.get("output")) if len(inside) == 1 else None
    extra = tuple(part for raw in array(result.get("parts")) for part in _part(raw))
    return (Text(only if only is not None else as_text(response)), *extra)


def tools(body: Fields) -> tuple[Tool, ...]:
    """Every function declared, and the built-in tools by their names."""
    return tuple(tool for raw in array(body.get("tools")) for tool in opened(raw))


def opened(raw: Raw) -> Iterator[Tool]:
    """One function declaration, or an entry of `tools` with the declarations in it."""
    entry = fields(raw)
    if "name" in entry:
        yield _declaration(entry)
        return
    for key, inner in entry.items():
        if key in ("functionDeclarations", "function_declarations"):
            yield from (_declaration(fields(each)) for each in array(inner))
        else:
            yield Tool(key, None, as_text(inner))


def _declaration(found: Fields) -> Tool:
    schema = next((found[key] for key in ("parameters", "parametersJsonSchema", "parameters_json_schema") if key in found), None)
    return Tool(string(found.get("name")) or "", string(found.get("description")), as_text(schema) if present(schema) else None)
