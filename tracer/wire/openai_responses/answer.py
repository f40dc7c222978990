"""OpenAI Responses answers, streamed (events or WebSocket messages) and whole: output items, times of content, usage, the end."""

from dataclasses import dataclass, field

from tracer.wire import answers
from tracer.wire.answers import Answer
from tracer.wire.contract import Part, Reasoning, Text, ToolCall
from tracer.wire.hearing import Heard, failed_or_no_json
from tracer.wire.json_values import Fields, Raw, array, as_text, fields, present, string
from tracer.wire.openai_responses.prompt import item_parts

_CHANNELS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool",
    "response.custom_tool_call_input.delta": "tool",
    "response.mcp_call_arguments.delta": "tool",
    "response.code_interpreter_call_code.delta": "tool",
}
TERMINAL = frozenset(("response.completed", "response.failed", "response.incomplete", "response.cancelled", "response.done"))


def hear(found: Answer | None) -> Heard:
    """What an answer says."""
    heard = Heard()
    if found is None:
        return heard
    if found.events is not None:
        stream = _Stream(heard)
        for event in found.events:
            stream.event(event.at_ns, fields(event.data))
        stream.close()
    elif not failed_or_no_json(heard, found):
        body = fields(found.document)
        _account(heard, body)
        heard.whole(found.at_ns, _output(body))
    elif found.document is not None and not found.failed:  # a response that failed, told in a 200
        _account(heard, fields(found.document))
    return heard


def _output(response: Fields) -> tuple[Part, ...]:
    return tuple(part for raw in array(response.get("output")) for part in item_parts(raw, fields(raw)))


def _account(heard: Heard, response: Fields) -> None:
    """Takes id, model, how it stopped, usage and error from a response object."""
    heard.model = string(response.get("model")) or heard.model
    heard.response_id = string(response.get("id")) or heard.response_id
    status = string(response.get("status"))
    if status not in (None, "in_progress", "queued"):
        heard.stop = string(fields(response.get("incomplete_details")).get("reason")) or status
    if present(response.get("usage")):
        heard.usage, heard.usage_raw = fields(response["usage"]), as_text(response["usage"])
    if present(response.get("error")):
        heard.error = answers.error_of(response["error"]) or "error"


@dataclass(slots=True)
class _Item:
    """An output item in the making."""

    opening: Raw = b"{}"
    done: Raw | None = None
    pieces: list[tuple[str, str]] = field(default_factory=list)

    def parts(self) -> tuple[Part, ...]:
        """The item as it was when done; else what its deltas brought so far."""
        if self.done is not None:
            return item_parts(self.done, fields(self.done))
        parts = item_parts(self.opening, fields(self.opening))
        if not self.pieces:
            return () if parts == (Reasoning(""),) else parts
        text = "".join(text for _, text in self.pieces)
        match parts:
            case (ToolCall(ident, name, arguments), *_):
                return (ToolCall(ident, name, arguments + text),)
            case _:
                return (Reasoning(text) if self.pieces[0][0] == "reasoning" else Text(text),)


class _Stream:
    """Follows the events of one stream."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._items: dict[bytes, _Item] = {}
        self._final: tuple[Part, ...] = ()

    def event(self, at_ns: int, event: Fields) -> None:
        """One event; those that only repeat what deltas brought say nothing."""
        called = string(event.get("type")) or ""
        if channel := _CHANNELS.get(called):
            self._delta(at_ns, channel, event)
        elif called == "response.output_item.added":
            self._added(at_ns, event)
        elif called == "response.output_item.done":
            self._done(at_ns, event)
        elif called == "error":  # its last word, in a stream as on a WebSocket
            self._heard.error = answers.error_of(event.get("error")) or answers.said(event) or "error"
            self._heard.ended = True
        elif called in TERMINAL:
            response = fields(event.get("response"))
            _account(self._heard, response)
            self._final = _output(response)
            self._heard.ended = True
        elif called in ("response.created", "response.in_progress", "response.queued"):
            _account(self._heard, fields(event.get("response")))

    def _item(self, event: Fields) -> _Item:
        return self._items.setdefault(bytes(event.get("output_index", b"0")), _Item())

    def _delta(self, at_ns: int, channel: str, event: Fields) -> None:
        text = string(event.get("delta"))
        if text:
            self._item(event).pieces.append((channel, text))
            self._heard.generated(at_ns, channel, text)

    def _added(self, at_ns: int, event: Fields) -> None:
        item = self._item(event)
        item.opening = event.get("item", b"{}")
        opening = fields(item.opening)
        if string(opening.get("type")) in ("function_call", "custom_tool_call"):
            self._heard.generated(at_ns, "tool", string(opening.get("name")))

    def _done(self, at_ns: int, event: Fields) -> None:
        """Servers that send no deltas bring the content here."""
        item = self._item(event)
        item.done = event.get("item", item.opening)
        if not item.pieces:
            for part in item.parts():
                announced = isinstance(part, ToolCall) and len(item.opening) > 2
                self._heard.part(at_ns, ToolCall(None, "", part.arguments) if announced and isinstance(part, ToolCall) else part)

    def close(self) -> None:
        """Takes the items in the order in which they were begun; the final response when there were none."""
        built = [part for item in self._items.values() for part in item.parts()]
        self._heard.reply = built or list(self._final)
