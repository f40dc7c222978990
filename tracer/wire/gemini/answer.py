"""Gemini answers: an event stream, a JSON array that grows, or one object; parts, times of content, usage, the end."""

from dataclasses import dataclass

from tracer.wire import answers
from tracer.wire.answers import Answer
from tracer.wire.contract import Part, Reasoning, Text
from tracer.wire.gemini.prompt import parts
from tracer.wire.hearing import Heard, failed_or_no_json
from tracer.wire.json_values import Fields, array, as_text, fields, integer, present, string
from tracer.wire.requests import either


@dataclass(frozen=True, slots=True)
class _Chunk:
    at_ns: int
    body: Fields


def hear(found: Answer | None, *, counting: bool) -> Heard:
    """What an answer says. `counting`: it answers a token count, which has neither content nor usage."""
    heard = Heard()
    if found is None:
        return heard
    growing = answers.array_items(found)
    if found.events is not None:
        _chunks(heard, found, [_Chunk(event.at_ns, fields(event.data)) for event in found.events])
    elif growing is not None and not found.failed:
        _chunks(heard, found, [_Chunk(at_ns, fields(raw)) for at_ns, raw in growing])
    elif not failed_or_no_json(heard, found) and not counting:
        _chunks(heard, found, [_Chunk(found.at_ns, fields(found.document))])
        heard.ended = True
    return heard


def _chunks(heard: Heard, found: Answer, chunks: list[_Chunk]) -> None:
    for chunk in chunks:
        _account(heard, chunk.body)
        for raw in array(chunk.body.get("candidates")):
            candidate = fields(raw)
            _candidate(heard, chunk.at_ns, candidate)
    _blocked(heard, chunks)
    heard.ended |= heard.stop is not None and found.whole


def _candidate(heard: Heard, at_ns: int, candidate: Fields) -> None:
    """The first candidate is the reply; content of all of them counts as generated."""
    said = parts(fields(candidate.get("content")))
    for part in said:
        heard.part(at_ns, part)
    if not integer(candidate.get("index")):
        heard.stop = string(either(candidate, "finishReason", "finish_reason")) or heard.stop
        for part in said:
            _append(heard.reply, part)


def _append(reply: list[Part], part: Part) -> None:
    """Pieces of one text, or of one thought, become one part."""
    previous = reply[-1] if reply else None
    match previous, part:
        case Text(before), Text(text):
            reply[-1] = Text(before + text)
        case Reasoning(before, None), Reasoning(text, opaque) if before and text:
            reply[-1] = Reasoning(before + text, opaque)
        case _, Text("") if reply:
            return
        case _:
            reply.append(part)


def _account(heard: Heard, body: Fields) -> None:
    heard.model = string(either(body, "modelVersion", "model_version")) or heard.model
    heard.response_id = string(either(body, "responseId", "response_id")) or heard.response_id
    usage = either(body, "usageMetadata", "usage_metadata")
    if present(usage):
        heard.usage, heard.usage_raw = fields(usage), as_text(usage)
    if present(body.get("error")):  # inside a 200 stream: its last word
        heard.error = answers.error_of(body["error"]) or "error"
        heard.ended = True


def _blocked(heard: Heard, chunks: list[_Chunk]) -> None:
    """A prompt refused as a whole has no candidate and so no finish reason of one."""
    for chunk in chunks:
        feedback = fields(either(chunk.body, "promptFeedback", "prompt_feedback"))
        if heard.stop is None:
            heard.stop = string(either(feedback, "blockReason", "block_reason"))
