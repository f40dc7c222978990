"""Gemini generateContent, streamGenerateContent and countTokens, answered: whole documents as chunks, function calls in one piece."""

import re
from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from replay.simulator.values import Answer, Asked, Event, Json, Offered, Spoken
from replay.simulator.wording import data_event, named, number, objects, packed, texts_of

NAME = "gemini"
PATH = re.compile(r"/models/(?P<model>[^/:]+):(?P<does>generateContent|streamGenerateContent|countTokens)$")
_STOPS = {"end": "STOP", "tool": "STOP", "length": "MAX_TOKENS"}
_STATUS = {
    "invalid": "INVALID_ARGUMENT",
    "too_long": "INVALID_ARGUMENT",
    "key": "UNAUTHENTICATED",
    "not_found": "NOT_FOUND",
    "model": "NOT_FOUND",
    "overloaded": "UNAVAILABLE",
}


def ask(path: str, query: str, body: Json) -> Asked:
    """What a request asks for."""
    found = PATH.search(path)
    assert found is not None
    inner = named(body, "generateContentRequest") or body
    contents, settings = objects(inner.get("contents")), named(inner, "generationConfig")
    answers = [named(part, "functionResponse") for content in contents for part in objects(content.get("parts"))]
    most = number(settings.get("maxOutputTokens"))
    return Asked(
        model=unquote(found["model"]),
        streamed=found["does"] == "streamGenerateContent",
        system=_texts([named(inner, "systemInstruction") or named(inner, "system_instruction")]),
        texts=_texts(contents),
        replies=_texts([content for content in contents if content.get("role") == "model"]),
        results=tuple("\n".join(_strings(answer.get("response"))) for answer in answers if answer),
        tools=tuple(_offered(inner)),
        tool_choice=_choice(named(named(inner, "toolConfig"), "functionCallingConfig")),
        schema=_schema(settings),
        most_tokens=most,
        counts_only=found["does"] == "countTokens",
        framing="sse" if parse_qs(query).get("alt") == ["sse"] else "array",
    )


def _texts(contents: list[Json]) -> tuple[str, ...]:
    return tuple(text for content in contents for text in texts_of(content.get("parts")))


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]


def _offered(body: Json) -> list[Offered]:
    declared = [function for tool in objects(body.get("tools")) for function in objects(tool.get("functionDeclarations"))]
    return [
        Offered(name=function["name"], schema=named(function, "parametersJsonSchema") or named(function, "parameters"))
        for function in declared
        if isinstance(function.get("name"), str)
    ]


def _choice(chosen: Json) -> str | None:
    allowed = chosen.get("allowedFunctionNames")
    if chosen.get("mode") == "ANY":
        return str(allowed[0]) if isinstance(allowed, list) and len(allowed) == 1 else "required"
    return "none" if chosen.get("mode") == "NONE" else None


def _schema(settings: Json) -> Json | None:
    found = named(settings, "responseJsonSchema") or named(settings, "responseSchema")
    return found if found or settings.get("responseMimeType") == "application/json" else None


def _usage(answer: Answer) -> Json:
    usage = {"promptTokenCount": answer.prompt, "candidatesTokenCount": answer.output, "totalTokenCount": answer.prompt + answer.output}
    return usage if answer.cached is None else {**usage, "cachedContentTokenCount": answer.cached}


def _document(answer: Answer, parts: list[Json], *, last: bool) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    document: Json = {"candidates": [candidate], "modelVersion": answer.model, "responseId": answer.name}
    if last:
        candidate["finishReason"] = _STOPS[answer.stop]
        document["usageMetadata"] = _usage(answer)
    return document


def _call(part: Spoken) -> Json:
    """Arguments are an object here: a call that was cut short cannot be sent at all."""
    assert part.tool is not None
    return {"functionCall": {"id": f"call_{part.call_id}", "name": part.tool.name, "args": orjson.loads(part.text)}}


def _is_whole(part: Spoken) -> bool:
    try:
        orjson.loads(part.text)
    except ValueError:
        return False
    return True


def whole(answer: Answer) -> bytes:
    """The answer as one document."""
    parts: list[Json] = []
    for part in answer.parts:
        if part.tool is None:
            parts.append({"text": part.text})
        elif _is_whole(part):
            parts.append(_call(part))
    return packed(_document(answer, parts, last=True))


def events(answer: Answer) -> list[Event]:
    """The answer as a stream of documents; one a token of text, one a function call when its last token is due."""
    sent: list[tuple[Json, int]] = []
    token = 0
    for part in answer.parts:
        if part.tool is None:
            sent += [({"text": piece}, at) for at, piece in enumerate(part.pieces, token) if piece]
        elif _is_whole(part):
            sent.append((_call(part), token + len(part.pieces) - 1))
        token += len(part.pieces)
    out = [Event(data_event(_document(answer, [part], last=False)), at) for part, at in sent[:-1]]
    closing, at = ([sent[-1][0]], sent[-1][1]) if sent else ([], max(0, answer.output - 1))
    return [*out, Event(data_event(_document(answer, closing, last=True)), at)]


def as_array(stream: list[Event]) -> list[Event]:
    """The same stream without `alt=sse`: one JSON array whose elements come one by one."""
    documents = [(event.data[len(b"data: ") :].strip(), event.token) for event in stream]
    return [Event((b",\r\n" if number else b"[") + data, at) for number, (data, at) in enumerate(documents)] + [Event(b"]")]


def refusal(status: int, reason: str, message: str) -> bytes:
    """An error in Gemini's shape."""
    return packed({"error": {"code": status, "message": message, "status": _STATUS[reason]}})
