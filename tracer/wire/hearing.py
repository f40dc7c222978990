"""What an answer has said, as a dialect fills it in while it reads. Knows no dialect."""

from dataclasses import dataclass, field

from tracer.wire.answers import Answer, error_text
from tracer.wire.contract import Delta, Part, Reasoning, Text, ToolCall
from tracer.wire.json_values import Fields, Raw, fields, present


@dataclass(slots=True)
class Heard:
    """The answer's side of a `Call`; `usage` is the provider's object, as raw members."""

    model: str | None = None
    response_id: str | None = None
    reply: list[Part] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    usage: Fields = field(default_factory=dict[str, Raw])
    usage_raw: str | None = None
    stop: str | None = None
    ended: bool = False
    error: str | None = None

    def generated(self, at_ns: int, channel: str, text: str | None) -> None:
        """Notes generated content; nothing when it is empty."""
        if text:
            self.deltas.append(Delta(at_ns, channel, text))

    def part(self, at_ns: int, part: Part) -> None:
        """Notes a part that came whole."""
        match part:
            case Text(text):
                self.generated(at_ns, "text", text)
            case Reasoning(text, _):
                self.generated(at_ns, "reasoning", text)
            case ToolCall(_, name, arguments):
                self.generated(at_ns, "tool", name + arguments)
            case _:
                return

    def whole(self, at_ns: int, parts: tuple[Part, ...]) -> None:
        """Takes the parts of an answer that was not streamed: all came with the read that completed it."""
        self.reply.extend(parts)
        for part in parts:
            self.part(at_ns, part)


def failed_or_no_json(heard: Heard, found: Answer) -> bool:
    """Deals with answers that hold no reply: errors by status, error objects, pages. True when that was all."""
    body = fields(found.document)
    if found.document is not None and not found.failed and not present(body.get("error")):
        heard.ended = bool(body) or found.document.lstrip().startswith(b"[")
        return not heard.ended
    heard.error = error_text(found)
    heard.ended = found.whole or bool(body)
    return found.failed or found.document is None or heard.error is not None
