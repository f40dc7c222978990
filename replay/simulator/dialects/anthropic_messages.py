"""Anthropic Messages, answered: streams of named events, usage with disjoint counts, errors in Anthropic's shape."""

from typing import Any

import orjson

from replay.simulator.values import Answer, Asked, Event, Json, Offered, Spoken
from replay.simulator.wording import data_event, named, number, objects, packed, texts_of

NAME = "anthropic_messages"
_STOPS = {"end": "end_turn", "tool": "tool_use", "length": "max_tokens"}
_ERRORS = {
    "invalid": "invalid_request_error",
    "too_long": "invalid_request_error",
    "key": "authentication_error",
    "not_found": "not_found_error",
    "model": "not_found_error",
    "overloaded": "overloaded_error",
}


def ask(path: str, query: str, body: Json) -> Asked:
    """What a request asks for."""
    del query
    messages = objects(body.get("messages"))
    blocks = [(message, block) for message in messages for block in objects(message.get("content"))]
    return Asked(
        model=str(body.get("model", "")),
        streamed=body.get("stream") is True,
        system=texts_of(body.get("system")),
        texts=tuple(text for message in messages for text in texts_of(message.get("content"))),
        replies=tuple(text for message in messages if message.get("role") == "assistant" for text in texts_of(message.get("content"))),
        results=tuple("\n".join(texts_of(block.get("content"))) for _, block in blocks if block.get("type") == "tool_result"),
        tools=tuple(_offered(tool) for tool in objects(body.get("tools")) if isinstance(tool.get("name"), str)),
        tool_choice=_choice(named(body, "tool_choice")),
        schema=_schema(body),
        most_tokens=number(body.get("max_tokens")),
        least_tokens=number(body.get("min_tokens")),
        counts_only=path.endswith("/count_tokens"),
        salt=body.get("cache_salt"),
    )


def _offered(tool: Json) -> Offered:
    return Offered(name=tool["name"], schema=named(tool, "input_schema"))


def _choice(choice: Json) -> str | None:
    return {"any": "required", "none": "none", "tool": choice.get("name")}.get(str(choice.get("type")))


def _schema(body: Json) -> Json | None:
    chosen = named(named(body, "output_config"), "format") or named(body, "output_format")
    return named(chosen, "schema") if chosen.get("type") == "json_schema" else None


def _usage(answer: Answer, output: int) -> Json:
    """Disjoint: `input_tokens` is what was not cached. Where nothing is reported it is the whole prompt."""
    if answer.cached is None:
        return {"input_tokens": answer.prompt, "output_tokens": output}
    uncached = answer.prompt - answer.cached
    return {
        "input_tokens": uncached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": answer.cached,
        "output_tokens": output,
    }


def _message(answer: Answer, content: list[Json], stop: str | None, output: int) -> Json:
    return {
        "id": f"msg_{answer.name}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _usage(answer, output),
    }


def whole(answer: Answer) -> bytes:
    """The answer as one document."""
    return packed(_message(answer, [_block(part) for part in answer.parts], _STOPS[answer.stop], answer.output))


def _block(part: Spoken) -> Json:
    if part.tool is None:
        return {"type": "text", "text": part.text}
    return {"type": "tool_use", "id": f"toolu_{part.call_id}", "name": part.tool.name, "input": _input(part.text)}


def _input(text: str) -> Any:
    """Arguments that were cut short stay text, as nothing else can be made of them."""
    try:
        return orjson.loads(text)
    except ValueError:
        return {"partial": text}


def events(answer: Answer) -> list[Event]:
    """The answer as a stream; one delta a token."""
    out = [_event({"type": "message_start", "message": _message(answer, [], None, 0)}), _event({"type": "ping"})]
    token = 0
    for index, part in enumerate(answer.parts):
        out += _block_events(index, part, token)
        token += len(part.pieces)
    ending = {"stop_reason": _STOPS[answer.stop], "stop_sequence": None}
    out.append(_event({"type": "message_delta", "delta": ending, "usage": _usage(answer, answer.output)}))
    out.append(_event({"type": "message_stop"}))
    return out


def _block_events(index: int, part: Spoken, token: int) -> list[Event]:
    kind, field = ("text_delta", "text") if part.tool is None else ("input_json_delta", "partial_json")
    empty = {"type": "text", "text": ""} if part.tool is None else {**_block(part), "input": {}}
    # The name of a tool is generated content: its block begins with the first token of the call.
    out = [Event(_data({"type": "content_block_start", "index": index, "content_block": empty}), None if part.tool is None else token)]
    for at, piece in enumerate(part.pieces, token):
        delta = {"type": kind, field: piece}
        if piece:
            out.append(Event(_data({"type": "content_block_delta", "index": index, "delta": delta}), at))
    return [*out, _event({"type": "content_block_stop", "index": index})]


def _data(value: Json) -> bytes:
    return data_event(value, value["type"])


def _event(value: Json) -> Event:
    return Event(_data(value))


def refusal(status: int, reason: str, message: str) -> bytes:
    """An error in Anthropic's shape."""
    del status
    return packed({"type": "error", "error": {"type": _ERRORS[reason], "message": message}})
