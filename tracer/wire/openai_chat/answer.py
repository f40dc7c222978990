"""Chat Completions answers, streamed and whole: the first choice's content and calls, times of content, usage, the end."""

from dataclasses import dataclass, field

from tracer.wire import answers
from tracer.wire.answers import Answer
from tracer.wire.contract import Part, Reasoning, Text, ToolCall
from tracer.wire.hearing import Heard, failed_or_no_json
from tracer.wire.json_values import Fields, Raw, array, as_text, fields, integer, present, string
from tracer.wire.openai_chat.prompt import parts, reasoning_text
from tracer.wire.requests import either


@dataclass(slots=True)
class Chat:
    """What was heard, and llama.cpp's `timings` beside the usage."""

    heard: Heard
    timings: Fields = field(default_factory=dict[str, Raw])

    def account(self, body: Fields) -> None:
        """Takes the model, the id, and the usage when it is told; Moonshot tells it inside the choice."""
        self.heard.model = string(body.get("model")) or self.heard.model
        self.heard.response_id = string(body.get("id")) or self.heard.response_id
        self.timings = fields(body.get("timings")) or self.timings
        usage = body.get("usage") or next((choice["usage"] for choice in _choices(body) if "usage" in choice), None)
        if present(usage) and fields(usage):
            self.heard.usage, self.heard.usage_raw = fields(usage), as_text(usage)


def hear(found: Answer | None) -> Chat:
    """What an answer says."""
    chat = Chat(Heard())
    if found is None:
        return chat
    if found.events is not None:
        _stream(chat, found)
    elif not failed_or_no_json(chat.heard, found):
        _whole(chat, found)
    return chat


def _choices(body: Fields) -> list[Fields]:
    return [fields(raw) for raw in array(body.get("choices"))]


def _whole(chat: Chat, found: Answer) -> None:
    body = fields(found.document)
    chat.account(body)
    for choice in _choices(body)[:1]:
        chat.heard.stop = string(choice.get("finish_reason"))
        chat.heard.whole(found.at_ns, parts(fields(choice.get("message"))))


def _stream(chat: Chat, found: Answer) -> None:
    stream = _Stream(chat.heard)
    for event in found.events or ():
        if event.data.strip() == b"[DONE]":
            chat.heard.ended = True
            continue
        body = fields(event.data)
        chat.account(body)
        stream.event(event.at_ns, body)
    stream.close()
    # some servers leave [DONE] out: a finish reason and a clean end of the body say the same
    chat.heard.ended |= chat.heard.stop is not None and found.whole


@dataclass(slots=True)
class _CallPieces:
    ident: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class _Stream:
    """Puts the chunks of one stream together. Of several choices the first is the reply; content of all of them counts as generated."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, _CallPieces] = {}

    def event(self, at_ns: int, body: Fields) -> None:
        """One chunk."""
        if present(body.get("error")):  # inside a 200 stream: its last word
            self._heard.error = answers.error_of(body["error"]) or "error"
            self._heard.ended = True
        for choice in _choices(body):
            first = not integer(choice.get("index"))
            self._delta(at_ns, fields(choice.get("delta")), first=first)
            if first:
                self._heard.stop = string(choice.get("finish_reason")) or self._heard.stop

    def _delta(self, at_ns: int, delta: Fields, *, first: bool) -> None:
        pieces = (
            ("reasoning", reasoning_text(delta), self._reasoning),
            ("text", string(delta.get("content")), self._text),
            ("refusal", string(delta.get("refusal")), self._refusal),
        )
        for channel, text, kept in pieces:
            self._heard.generated(at_ns, channel, text)
            if text and first:
                kept.append(text)
        for raw in array(delta.get("tool_calls")):
            self._call(at_ns, fields(raw), first=first)
        if present(delta.get("function_call")):
            self._call(at_ns, {"function": delta["function_call"]}, first=first)

    def _call(self, at_ns: int, call: Fields, *, first: bool) -> None:
        function = fields(either(call, "function", "custom"))
        name = string(function.get("name")) or ""
        arguments = string(either(function, "arguments", "input")) or ""
        self._heard.generated(at_ns, "tool", name + arguments)
        if not first:
            return
        pieces = self._calls.setdefault(self._slot(call), _CallPieces())
        pieces.ident = string(call.get("id")) or pieces.ident
        pieces.name = pieces.name or name
        pieces.arguments.append(arguments)

    def _slot(self, call: Fields) -> int:
        """Which call a fragment goes to; without an index (Gemini's and other compatible servers) a new id opens a new one."""
        index = integer(call.get("index"))
        if index is not None:
            return index
        latest = max(self._calls, default=0)
        known = self._calls.get(latest)
        ident = string(call.get("id"))
        return latest + 1 if known is not None and ident and known.ident not in (None, ident) else latest

    def close(self) -> None:
        """Puts the parts in the order of a message."""
        reply: list[Part] = []
        if self._reasoning:
            reply.append(Reasoning("".join(self._reasoning)))
        reply.extend(Text("".join(kept)) for kept in (self._text, self._refusal) if kept)
        reply.extend(ToolCall(each.ident, each.name, "".join(each.arguments)) for _, each in sorted(self._calls.items()))
        self._heard.reply = reply
