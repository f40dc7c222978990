"""What every dialect gives: the values a call is made of, and the functions a dialect module has.

Pure: bytes and records in, values out. A dialect is a module, named in the one tuple `tracer.wire.DIALECTS`; mypy checks each against
`Dialect`. Nothing here knows sockets, files or the store. Text that is not understood is carried as `Opaque`, never dropped.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from storage.records import Exchange, Request, Split, Usage


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Thinking. `opaque` is what must be carried unchanged (signature, encrypted content)."""

    text: str
    opaque: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is the JSON text exactly as it stood."""

    id: str | None
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str | None
    parts: tuple["Part", ...]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Media:
    """An image, document or sound: `source` is a URL, a file id or base64 text as it stood; `mime` as declared."""

    kind: str
    mime: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """Not understood: `kind` is what it called itself, `raw` the JSON as it came."""

    kind: str
    raw: str


type Part = Text | Reasoning | ToolCall | ToolResult | Media | Opaque


@dataclass(frozen=True, slots=True)
class Message:
    """`role` is the dialect-neutral one: system, developer, user, assistant, tool."""

    role: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """`schema` is the JSON text of the parameters as it stood."""

    name: str
    description: str | None
    schema: str | None


@dataclass(frozen=True, slots=True)
class Delta:
    """Generated content that one raw read completed. `channel`: text, reasoning, tool, refusal."""

    at_ns: int
    channel: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What an exchange meant.

    `prompt` is in prompt order without tools; `settings` the remaining top-level fields of the request, parsed.
    `ended`: the dialect's terminal event (or a whole unstreamed answer) was seen; `error`: the provider's message when it gave one.
    `usage_raw` is the provider's usage object as JSON text.
    """

    model: str | None = None
    prompt: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    streamed: bool = False
    reply: tuple[Part, ...] = ()
    deltas: tuple[Delta, ...] = ()
    stop: str | None = None
    ended: bool = False
    usage: Usage = field(default_factory=Usage)
    usage_raw: str | None = None
    response_id: str | None = None
    previous_response_id: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The edits a replay may declare; None or empty: leave as it is. Everything else in the body stays equal to the byte.

    `settings` sets top-level (or dotted) body fields to JSON text; `prefix_nonce` is put at the dialect's first cacheable place.
    """

    model: str | None = None
    max_output_tokens: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    report_usage: bool = False
    """Ask a stream to report usage where the dialect needs asking (Chat: `stream_options.include_usage`)."""
    prefix_nonce: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a server holds of a conversation once it has answered, as JSON texts: what requests that name the answer go on from.

    `heads`: name and value of the members that stand before all that is said (tools, instructions); `said`: each item or message.
    """

    heads: tuple[tuple[str, bytes], ...] = ()
    said: tuple[bytes, ...] = ()


class Dialect(Protocol):
    """One provider's wire format, as a module."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module constant
        """As the command line says it: anthropic_messages, openai_chat, openai_responses, gemini."""
        ...

    def matches(self, request: Request) -> bool:
        """Whether this request is a model call of this dialect (by path and method; token counts included)."""
        ...

    def read(self, exchange: Exchange) -> Call:
        """Everything the exchange says. Never raises on any bytes: what cannot be read is left None or Opaque."""
        ...

    def split(self, body: bytes) -> Split | None:
        """The elements of a decoded request body in prompt order; None when it is not JSON of this dialect."""
        ...

    def render(self, group: str, element: bytes) -> str:
        """An element's canonical bytes as the text a template would show: what is counted and compared as prompt."""
        ...

    def change(self, request: Request, changes: Changes) -> Request:
        """The request with the declared changes, every other byte as it was. Raises ValueError when the body cannot carry them."""
        ...
