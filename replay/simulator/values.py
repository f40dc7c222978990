"""What the parts of the simulator hand to each other: a request as it is understood, an answer as it will be said. Pure."""

from dataclasses import dataclass, field
from typing import Any

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A tool that the client offers. `form`: `function` takes JSON by `schema`, `custom` takes free text."""

    name: str
    schema: Json = field(default_factory=dict)
    form: str = "function"
    namespace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One model call as the simulator understands it. Texts in prompt order; `results` are what tools gave back."""

    model: str
    streamed: bool = False
    system: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    tools: tuple[Offered, ...] = ()
    tool_choice: str | None = None
    """`none`, `required`, or the name of the tool that must be called; None: free."""
    schema: Json | None = None
    """The JSON schema that the answer's text must follow; `{}` asks for any JSON."""
    most_tokens: int | None = None
    least_tokens: int | None = None
    reports_usage: bool = True
    """Whether a stream is to carry usage: Chat Completions only when asked."""
    counts_only: bool = False
    salt: str | None = None
    framing: str = "sse"
    """How a stream is framed; Gemini without `alt=sse` streams a JSON `array`, a WebSocket carries `messages`."""


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class CallTool:
    """`given` is the JSON text of the arguments, or the free text of a custom tool."""

    tool: Offered
    given: str


type Step = Say | CallTool


@dataclass(frozen=True, slots=True)
class Spoken:
    """A step in tokens: `pieces` has one text a token, empty where a token ends inside a character. `call_id` None: plain text."""

    pieces: tuple[str, ...]
    call_id: str | None = None
    tool: Offered | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All that will be sent. `stop`: end, tool or length. `cached` None: the server does not report it."""

    name: str
    """Unique among the server's answers; ids in the dialect's own style are made of it."""
    model: str
    parts: tuple[Spoken, ...]
    stop: str
    prompt: int
    cached: int | None
    output: int
    reports_usage: bool = True
    created_s: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """A piece of a stream. `token`: it is sent when this output token (from 0) is due; None: together with what stands before it."""

    data: bytes
    token: int | None = None


class Refusal(Exception):  # noqa: N818 - what is answered, not what went wrong here
    """The request is answered with an error. `reason`: invalid, too_long, key, not_found, model, overloaded, previous."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
