"""OpenAI Chat Completions, answered: unnamed chunks, usage only where a stream asks for it, errors in OpenAI's shape."""

from typing import Any

from replay.simulator.values import Answer, Asked, Event, Json, Offered, Spoken
from replay.simulator.wording import data_event, named, number, objects, packed, texts_of

NAME = "openai_chat"
_STOPS = {"end": "stop", "tool": "tool_calls", "length": "length"}
_ERRORS = {
    "invalid": ("invalid_request_error", None),
    "too_long": ("invalid_request_error", "context_length_exceeded"),
    "key": ("invalid_request_error", "invalid_api_key"),
    "not_found": ("invalid_request_error", "unknown_url"),
    "model": ("invalid_request_error", "model_not_found"),
    "overloaded": ("server_error", "overloaded"),
    "previous": ("invalid_request_error", "previous_response_not_found"),
}


def ask(path: str, query: str, body: Json) -> Asked:
    """What a request asks for."""
    del path, query
    messages = objects(body.get("messages"))
    most = number(body.get("max_completion_tokens"))
    return Asked(
        model=str(body.get("model", "")),
        streamed=body.get("stream") is True,
        system=_texts(messages, "system", "developer"),
        texts=_texts(messages),
        replies=_texts(messages, "assistant"),
        results=tuple("\n".join(texts_of(message.get("content"))) for message in messages if message.get("role") == "tool"),
        tools=tuple(offered(tool) for tool in objects(body.get("tools")) if named(tool, "function").get("name")),
        tool_choice=choice(body.get("tool_choice")),
        schema=_schema(named(body, "response_format")),
        most_tokens=number(body.get("max_tokens")) if most is None else most,
        least_tokens=least_tokens(body),
        reports_usage=named(body, "stream_options").get("include_usage") is True or body.get("stream") is not True,
        salt=body.get("cache_salt"),
    )


def _texts(messages: list[Json], *roles: str) -> tuple[str, ...]:
    return tuple(text for message in messages if not roles or message.get("role") in roles for text in texts_of(message.get("content")))


def offered(tool: Json) -> Offered:
    """A function as it is offered under `function`."""
    function = named(tool, "function")
    return Offered(name=str(function["name"]), schema=named(function, "parameters"))


def choice(chosen: Any) -> str | None:
    """`none`, `required` or the name of the tool that must be called."""
    if isinstance(chosen, dict):
        return named(chosen, "function").get("name") or chosen.get("name")
    return chosen if chosen in ("none", "required") else None


def _schema(chosen: Json) -> Json | None:
    if chosen.get("type") == "json_object":
        return {}
    return named(named(chosen, "json_schema"), "schema") if chosen.get("type") == "json_schema" else None


def least_tokens(body: Json) -> int | None:
    """vLLM's extensions: `min_tokens`, and `ignore_eos`, which runs up to the limit."""
    if body.get("ignore_eos") is True:
        return number(body.get("max_completion_tokens")) or number(body.get("max_tokens"))
    return number(body.get("min_tokens"))


def _usage(answer: Answer) -> Json:
    usage: Json = {"prompt_tokens": answer.prompt, "completion_tokens": answer.output, "total_tokens": answer.prompt + answer.output}
    if answer.cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": answer.cached}
    return usage


def _head(answer: Answer, kind: str) -> Json:
    return {"id": f"chatcmpl-{answer.name}", "object": kind, "created": answer.created_s, "model": answer.model}


def whole(answer: Answer) -> bytes:
    """The answer as one document."""
    said = "".join(part.text for part in answer.parts if part.tool is None)
    message: Json = {"role": "assistant", "content": said or None}
    calls = [_call(part) for part in answer.parts if part.tool is not None]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop]}
    return packed({**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer)})


def _call(part: Spoken) -> Json:
    assert part.tool is not None
    return {"id": f"call_{part.call_id}", "type": "function", "function": {"name": part.tool.name, "arguments": part.text}}


def events(answer: Answer) -> list[Event]:
    """The answer as a stream; one delta a token, a role-only chunk first, usage where the request asked for it."""
    head = _head(answer, "chat.completion.chunk")
    out = [_chunk(head, {"role": "assistant", "content": ""})]
    token = calls = 0
    for part in answer.parts:
        if part.tool is None:
            out += [_chunk(head, {"content": piece}, at) for at, piece in enumerate(part.pieces, token) if piece]
        else:
            out += _call_chunks(head, part, calls, token)
            calls += 1
        token += len(part.pieces)
    out.append(_chunk(head, {}, stop=_STOPS[answer.stop]))
    if answer.reports_usage:
        out.append(Event(data_event({**head, "choices": [], "usage": _usage(answer)})))
    return [*out, Event(b"data: [DONE]\n\n")]


def _call_chunks(head: Json, part: Spoken, index: int, token: int) -> list[Event]:
    opening = {"index": index, **_call(part)}
    opening["function"] = {**opening["function"], "arguments": ""}
    out = [_chunk(head, {"tool_calls": [opening]}, token)]
    for at, piece in enumerate(part.pieces, token):
        if piece:
            out.append(_chunk(head, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, at))
    return out


def _chunk(head: Json, delta: Json, token: int | None = None, stop: str | None = None) -> Event:
    return Event(data_event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}), token)


def refusal(status: int, reason: str, message: str) -> bytes:
    """An error in OpenAI's shape."""
    del status
    kind, code = _ERRORS[reason]
    return packed({"error": {"message": message, "type": kind, "param": None, "code": code}})
