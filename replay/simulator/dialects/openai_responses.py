"""OpenAI Responses over HTTP, answered: typed events with sequence numbers, function and custom tools, namespaces as Codex uses them."""

from replay.simulator.dialects import openai_chat
from replay.simulator.values import Answer, Asked, Event, Json, Offered, Spoken
from replay.simulator.wording import data_event, named, number, objects, packed, texts_of

NAME = "openai_responses"
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output")


def ask(path: str, query: str, body: Json) -> Asked:
    """What a request asks for."""
    del path, query
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
    tools = objects(body.get("tools")) + [tool for item in items for tool in objects(item.get("tools"))]
    most = number(body.get("max_output_tokens"))
    return Asked(
        model=str(body.get("model", "")),
        streamed=body.get("stream") is True,
        system=texts_of(body.get("instructions")) + _texts(items, "system", "developer"),
        texts=tuple(text for item in items for text in texts_of(item)),
        replies=_texts(items, "assistant"),
        results=tuple("\n".join(texts_of(item.get("output"))) for item in items if item.get("type") in _RESULTS),
        tools=tuple(tool for entry in tools for tool in _offered(entry, None)),
        tool_choice=openai_chat.choice(body.get("tool_choice")),
        schema=_schema(named(named(body, "text"), "format")),
        most_tokens=most,
        least_tokens=most if body.get("ignore_eos") is True else number(body.get("min_tokens")),
        salt=body.get("cache_salt"),
    )


def _texts(items: list[Json], *roles: str) -> tuple[str, ...]:
    return tuple(text for item in items if item.get("role") in roles for text in texts_of(item.get("content")))


def _offered(tool: Json, namespace: str | None) -> list[Offered]:
    """A tool, or those of a namespace; kinds that the provider runs itself (web search, ...) are none of ours."""
    kind, name = tool.get("type"), tool.get("name")
    if kind == "namespace":
        return [found for inner in objects(tool.get("tools")) for found in _offered(inner, str(name))]
    if kind not in ("function", "custom") or not isinstance(name, str):
        return []
    return [Offered(name=name, schema=named(tool, "parameters"), form=str(kind), namespace=namespace)]


def _schema(chosen: Json) -> Json | None:
    if chosen.get("type") == "json_object":
        return {}
    return named(chosen, "schema") if chosen.get("type") == "json_schema" else None


def _usage(answer: Answer) -> Json:
    usage: Json = {
        "input_tokens": answer.prompt,
        "output_tokens": answer.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt + answer.output,
    }
    if answer.cached is not None:
        usage["input_tokens_details"] = {"cached_tokens": answer.cached}
    return usage


def _response(answer: Answer, status: str) -> Json:
    return {
        "id": f"resp_{answer.name}",
        "object": "response",
        "created_at": answer.created_s,
        "status": status,
        "model": answer.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }


def _ended(answer: Answer) -> Json:
    cut = answer.stop == "length"
    response = _response(answer, "incomplete" if cut else "completed")
    response["output"] = [_item(answer, index, part) for index, part in enumerate(answer.parts)]
    response["usage"] = _usage(answer)
    if cut:
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    return response


def _item(answer: Answer, index: int, part: Spoken) -> Json:
    if part.tool is None:
        content = [{"type": "output_text", "text": part.text, "annotations": []}]
        return {"type": "message", "id": f"msg_{answer.name}_{index}", "role": "assistant", "status": "completed", "content": content}
    custom = part.tool.form == "custom"
    item: Json = {
        "type": "custom_tool_call" if custom else "function_call",
        "id": f"{'ctc' if custom else 'fc'}_{part.call_id}",
        "status": "completed",
        "call_id": f"call_{part.call_id}",
        "name": part.tool.name,
        "input" if custom else "arguments": part.text,
    }
    return item if part.tool.namespace is None else {**item, "namespace": part.tool.namespace}


def whole(answer: Answer) -> bytes:
    """The answer as one document."""
    return packed(_ended(answer))


def events(answer: Answer) -> list[Event]:
    """The answer as a stream; one delta a token."""
    out: list[tuple[Json, int | None]] = [
        ({"type": "response.created", "response": _response(answer, "in_progress")}, None),
        ({"type": "response.in_progress", "response": _response(answer, "in_progress")}, None),
    ]
    token = 0
    for index, part in enumerate(answer.parts):
        item = _item(answer, index, part)
        out += _message_events(index, part, item, token) if part.tool is None else _call_events(index, part, item, token)
        token += len(part.pieces)
    ended = _ended(answer)
    out.append(({"type": f"response.{ended['status']}", "response": ended}, None))
    numbered = ({**value, "sequence_number": number} for number, (value, _) in enumerate(out))
    return [Event(data_event(value, value["type"]), at) for value, (_, at) in zip(numbered, out, strict=True)]


def as_messages(events: list[Event]) -> list[Event]:
    """The events as messages of a WebSocket: each its JSON alone."""
    return [Event(event.data.partition(b"data: ")[2].rstrip(), event.token) for event in events]


def _message_events(index: int, part: Spoken, item: Json, token: int) -> list[tuple[Json, int | None]]:
    place: Json = {"output_index": index, "item_id": item["id"], "content_index": 0}
    done, empty = item["content"][0], {"type": "output_text", "text": "", "annotations": []}
    deltas = [({"type": "response.output_text.delta", **place, "delta": piece}, at) for at, piece in enumerate(part.pieces, token) if piece]
    opening = {**item, "status": "in_progress", "content": []}
    return [
        ({"type": "response.output_item.added", "output_index": index, "item": opening}, None),
        ({"type": "response.content_part.added", **place, "part": empty}, None),
        *deltas,
        ({"type": "response.output_text.done", **place, "text": part.text}, None),
        ({"type": "response.content_part.done", **place, "part": done}, None),
        ({"type": "response.output_item.done", "output_index": index, "item": item}, None),
    ]


def _call_events(index: int, part: Spoken, item: Json, token: int) -> list[tuple[Json, int | None]]:
    kind, key = ("custom_tool_call_input", "input") if item["type"] == "custom_tool_call" else ("function_call_arguments", "arguments")
    place: Json = {"output_index": index, "item_id": item["id"]}
    deltas = [({"type": f"response.{kind}.delta", **place, "delta": piece}, at) for at, piece in enumerate(part.pieces, token) if piece]
    return [
        ({"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress", key: ""}}, token),
        *deltas,
        ({"type": f"response.{kind}.done", **place, key: part.text}, None),
        ({"type": "response.output_item.done", "output_index": index, "item": item}, None),
    ]


refusal = openai_chat.refusal
