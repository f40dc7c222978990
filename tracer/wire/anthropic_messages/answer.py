"""Anthropic Messages answers, streamed and whole: content blocks, times of content, usage, the end. Knows nothing of requests."""

from dataclasses import dataclass, field

from tracer.wire import answers, usage
from tracer.wire.answers import Answer
from tracer.wire.anthropic_messages.prompt import part, parts
from tracer.wire.contract import Part, Reasoning, Text, ToolCall
from tracer.wire.hearing import Heard, failed_or_no_json
from tracer.wire.json_values import Fields, Raw, as_text, fields, present, string

_DELTAS: dict[str, tuple[str, str | None, bytes]] = {
    "text_delta": ("text", "text", b'{"type":"text","text":""}'),
    "thinking_delta": ("thinking", "reasoning", b'{"type":"thinking"}'),
    "input_json_delta": ("partial_json", "tool", b'{"type":"tool_use"}'),
    "signature_delta": ("signature", None, b'{"type":"thinking"}'),
}
"""Delta type -> where its text is, its channel (None: not generated content), the block it belongs to when none was announced."""


def hear(found: Answer | None, *, counting: bool) -> Heard:
    """What an answer says. `counting`: it answers a token count, which has neither content nor usage."""
    heard = Heard()
    if found is None:
        return heard
    if found.events is not None:
        stream = _Stream(heard)
        for event in found.events:
            stream.event(event.at_ns, fields(event.data))
        stream.close()
    elif not failed_or_no_json(heard, found) and not counting:
        _whole(heard, found)
    return heard


def _whole(heard: Heard, found: Answer) -> None:
    message = fields(found.document)
    heard.model, heard.response_id = string(message.get("model")), string(message.get("id"))
    heard.stop = string(message.get("stop_reason"))
    heard.usage = fields(message.get("usage"))
    heard.usage_raw = as_text(message["usage"]) if present(message.get("usage")) else None
    heard.whole(found.at_ns, parts(message.get("content")))


@dataclass(slots=True)
class _Block:
    """A content block in the making; `opening` is how it was announced."""

    opening: Raw
    texts: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)

    def part(self) -> Part:
        """The block as a part, with all that its deltas brought."""
        text, announced = "".join(self.texts), part(self.opening)
        match announced:
            case Text(first):
                return Text(first + text)
            case Reasoning(first, opaque):
                return Reasoning(first + text, "".join(self.signature) or opaque or None)
            case ToolCall(ident, name, arguments):
                return ToolCall(ident, name, text or arguments)
            case _:
                return announced


class _Stream:
    """Follows the events of one stream."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._blocks: dict[bytes, _Block] = {}
        self._usage: list[Raw] = []

    def event(self, at_ns: int, event: Fields) -> None:
        """One event; unknown ones (ping and those to come) say nothing."""
        match string(event.get("type")):
            case "message_start":
                self._message_start(fields(event.get("message")))
            case "content_block_start":
                self._block_start(at_ns, event)
            case "content_block_delta":
                self._block_delta(at_ns, event)
            case "message_delta":
                self._heard.stop = string(fields(event.get("delta")).get("stop_reason")) or self._heard.stop
                self._account(event)
            case "message_stop":
                self._heard.ended = True
            case "error":  # inside a 200 stream: its last word
                self._heard.error = answers.error_of(event.get("error")) or "error"
                self._heard.ended = True
            case _:
                return

    def close(self) -> None:
        """Puts the parts together, in the order in which they were begun."""
        self._heard.reply = [block.part() for block in self._blocks.values()]
        told = [fields(raw) for raw in self._usage]
        self._heard.usage = usage.joined(told)
        self._heard.usage_raw = as_text(self._usage[0]) if len(told) == 1 else usage.as_json(self._heard.usage)

    def _message_start(self, message: Fields) -> None:
        self._heard.model, self._heard.response_id = string(message.get("model")), string(message.get("id"))
        self._account(message)

    def _account(self, holder: Fields) -> None:
        if present(holder.get("usage")):
            self._usage.append(holder["usage"])

    def _block_start(self, at_ns: int, event: Fields) -> None:
        opening = event.get("content_block", b"{}")
        self._blocks[_index(event)] = _Block(opening)
        announced = part(opening)
        self._heard.part(at_ns, ToolCall(None, announced.name, "") if isinstance(announced, ToolCall) else announced)

    def _block_delta(self, at_ns: int, event: Fields) -> None:
        delta = fields(event.get("delta"))
        key, channel, opening = _DELTAS.get(string(delta.get("type")) or "", ("", None, b""))
        text = string(delta.get(key))
        if not text:
            return
        block = self._blocks.setdefault(_index(event), _Block(opening))
        if channel is None:
            block.signature.append(text)
        else:
            block.texts.append(text)
            self._heard.generated(at_ns, channel, text)


def _index(event: Fields) -> bytes:
    return bytes(event.get("index", b"0"))
