"""Finds, among the tools that a client offers, those that run a command, write a file and read one, and makes their arguments. Pure.

Agents name the same three things differently; they are recognised by name, and their arguments by the names in their schema.
"""

from typing import Any

from replay.simulator.values import Asked, CallTool, Json, Offered
from replay.simulator.wording import packed

SHELLS = ("bash", "exec_command", "shell", "run_shell_command", "terminal", "run_commands", "execute_command", "exec")
WRITERS = ("write", "write_file", "create", "create_file", "write_to_file", "file_editor")
READERS = ("read", "read_file", "view", "read_files", "file_editor")
FINISHERS = ("finish", "attempt_completion", "submit")
_PATHS = ("file_path", "filePath", "path", "absolute_path")
_CONTENTS = ("content", "file_text", "contents", "text")


def offered(asked: Asked, names: tuple[str, ...]) -> Offered | None:
    """The first of the offered tools that bears one of the names, in the order of the names; case does not count."""
    by_name = {tool.name.lower(): tool for tool in reversed(asked.tools)}
    return next((by_name[name] for name in names if name in by_name), None)


def shell(asked: Asked, command: str) -> CallTool | None:
    """Runs a command. Codex's `exec` is a custom tool that takes JavaScript."""
    tool = offered(asked, SHELLS)
    if tool is None:
        return None
    if tool.form == "custom":
        return CallTool(tool, f"const r = await tools.exec_command({_text({'cmd': command})});\ntext(r);")
    properties = _properties(tool)
    key = next((name for name in ("command", "cmd", "commands", "script") if name in properties), "command")
    return _call(tool, {key: _as_command(command, key, properties.get(key))})


def _as_command(command: str, key: str, schema: Any) -> Any:
    """A command as its schema wants it: text, a list of commands, or the words of one."""
    if not isinstance(schema, dict) or schema.get("type") != "array":
        return command
    return [command] if key == "commands" else ["bash", "-lc", command]


def write(asked: Asked, path: str, content: str) -> CallTool | None:
    """Writes a file, with a shell where no tool is made for it."""
    tool, runner = offered(asked, WRITERS), offered(asked, SHELLS)
    if tool is not None and _key(tool, _CONTENTS):
        chosen: Json = {_key(tool, _PATHS) or "path": path, _key(tool, _CONTENTS) or "content": content}
        return _call(tool, {**({"command": "create"} if tool.name.lower() == "file_editor" else {}), **chosen})
    if runner is not None and runner.form == "custom":
        added = "".join(f"+{line}\n" for line in content.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch\n"
        return CallTool(runner, f"const r = await tools.apply_patch({_text(patch)});\ntext(r);")
    return shell(asked, f"cat > {path} <<'END'\n{content}END")


def read(asked: Asked, path: str) -> CallTool | None:
    """Reads a file, with a shell where no tool is made for it."""
    tool = offered(asked, READERS)
    if tool is None or tool.form == "custom":
        return shell(asked, f"cat {path}")
    if "files" in _properties(tool):
        return _call(tool, {"files": [{"path": path}]})
    return _call(tool, {**({"command": "view"} if tool.name.lower() == "file_editor" else {}), _key(tool, _PATHS) or "path": path})


def finish(asked: Asked, message: str) -> CallTool | None:
    """Ends the task, for agents whose model must call a tool to say so."""
    tool = offered(asked, FINISHERS)
    return None if tool is None else _call(tool, {"message": message} if "message" in _properties(tool) else {})


def any_arguments(tool: Offered) -> CallTool:
    """A call with the least that the schema takes: for clients that force a tool."""
    return CallTool(tool, "text('done');") if tool.form == "custom" else CallTool(tool, _text(example(tool.schema)))


def _call(tool: Offered, given: Json) -> CallTool:
    """The arguments, and an example of everything else that the schema requires."""
    properties = _properties(tool)
    required = tool.schema.get("required")
    missing = [name for name in required if name not in given] if isinstance(required, list) else []
    return CallTool(tool, _text({**given, **{name: example(properties.get(name, {})) for name in missing}}))


def _text(value: Any) -> str:
    """Compact JSON, as it is sent whole too."""
    return packed(value).decode()


def _properties(tool: Offered) -> Json:
    found = tool.schema.get("properties")
    return found if isinstance(found, dict) else {}


def _key(tool: Offered, names: tuple[str, ...]) -> str | None:
    properties = _properties(tool)
    return next((name for name in names if name in properties), None)


def example(schema: Any) -> Any:
    """The least value that a JSON schema takes: first of the choices, required properties only."""
    if not isinstance(schema, dict):
        return "simulated"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    choices = next((schema[key] for key in ("enum", "anyOf", "oneOf") if isinstance(schema.get(key), list) and schema[key]), None)
    if choices:
        return choices[0] if "enum" in schema else example(choices[0])
    return _of_kind(schema, _kind(schema))


def _kind(schema: Json) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return str(kind[0] if isinstance(kind, list) and kind else kind).lower()


def _of_kind(schema: Json, kind: str) -> Any:
    match kind:
        case "object":
            properties = schema.get("properties") or {}
            return {name: example(properties.get(name)) for name in schema.get("required") or properties}
        case "array":
            return [example(schema.get("items")) for _ in range(int(schema.get("minItems") or 0))]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
        case _:
            return "simulated"
