"""The values that everything passes on: what was on the wire, what a reader made of it, where it belongs.

Pure and without I/O. Times: `started_ns` is Unix-epoch nanoseconds taken from a monotonic clock and one wall-clock anchor a process;
every other `*_ns` of an exchange is nanoseconds since its `started_ns`. `None` is "unknown", never zero. Bytes are as on the wire
without transfer-encoding, with content-encoding. These values do not know how they are stored, nor any dialect.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NewType

type Headers = tuple[tuple[str, str], ...]
"""Names and values in wire order and case, as latin-1 text; a value that was not to be kept reads `***` or `***:FINGERPRINT`."""

ExchangeId = NewType("ExchangeId", int)
RunId = NewType("RunId", int)

REDACTED = "***"
"""Stands where a secret stood; `***:` and a keyed fingerprint where equal secrets must stay recognisable as equal."""


class FailureKind(StrEnum):
    """Who or what cut an exchange short."""

    CLIENT_LEFT = "client_left"
    SERVER_CUT = "server_cut"
    TRUNCATED = "truncated"
    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"


class State(StrEnum):
    """How an exchange ended, as the command line says it."""

    IN_FLIGHT = "in_flight"
    COMPLETE = "complete"
    CLIENT_ABORTED = "client_aborted"
    UPSTREAM_ABORTED = "upstream_aborted"
    TRUNCATED = "truncated"
    ERROR = "error"
    INTERRUPTED = "interrupted"


class Transport(StrEnum):
    """What carried an exchange."""

    HTTP1 = "http1"
    H2 = "h2"
    WS = "ws"


@dataclass(frozen=True, slots=True)
class Arrival:
    """One piece of a body, and when it came."""

    at_ns: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the client asked. `url` is absolute: the upstream's origin with path and query as the client sent them, secrets masked."""

    method: str
    url: str
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What came back: `headers_at_ns` when the head was complete, `arrivals` every raw read of the body in order."""

    status: int
    headers: Headers
    headers_at_ns: int
    arrivals: tuple[Arrival, ...] = ()

    @property
    def body(self) -> bytes:
        """The body as it was on the wire, content-encoding included."""
        return b"".join(arrival.data for arrival in self.arrivals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong on the wire, and when. An exchange may have a response and a failure."""

    kind: FailureKind
    message: str
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an exchange was made: the recorder's listener or the replayer, the client behind it."""

    listener: str | None = None
    """`HOST:PORT` that the client spoke to; None for replays and imports."""
    connection: str | None = None
    """Names the client's connection within one recorder run."""
    client_pid: int | None = None
    client_command: str | None = None
    label: str | None = None
    """What a run wrapper said this traffic belongs to; beats every other signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and what came back. `ended_ns` None: still in flight. `sent_ns`: last byte of the request had been passed on."""

    started_ns: int
    request: Request
    sent_ns: int | None = None
    response: Response | None = None
    failure: Failure | None = None
    ended_ns: int | None = None
    transport: Transport = Transport.HTTP1
    origin: Origin = field(default_factory=Origin)
    own_ns: int | None = None
    """Time that the recorder's own code took on the way of its bytes; None: not measured."""
    stall_ns: int | None = None
    """The longest time that the recorder's event loop stood still meanwhile: no stamp is truer than this. None: not measured."""
    id: ExchangeId | None = None
    """Given by the store; None before."""

    @property
    def started_at(self) -> datetime:
        """When the request head was there, as an aware datetime."""
        return datetime.fromtimestamp(self.started_ns / 1e9, UTC)


# ---- how a body is laid out in the prefix tree ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a request body in prompt order.

    `group` says what it is (`tool`, `system`, `message`, `item`); `start:end` is its span in the body; `cuts` are spans in it (absolute,
    ascending, disjoint) that do not belong to its identity (cache markers, random ids): they are kept beside the tree.
    """

    group: str
    start: int
    end: int
    cuts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """A request body taken apart. `body` is the decoded text (content-encoding removed); elements in prompt order, spans disjoint."""

    body: bytes
    elements: tuple[Element, ...]


type Splitter = Callable[[Request], Split | None]
"""Given to the writer by whoever knows dialects; None: the body is kept whole."""


# ---- what a reader makes of an exchange (derived, rebuilt by `reread`) -----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as normalised in docs/reference/metrics.md: `prompt` counts all of the prompt, cached tokens included."""

    prompt: int | None = None
    cached: int | None = None
    cache_written: int | None = None
    output: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """The events of one exchange (docs/reference/metrics.md), ns since its start."""

    first_byte_ns: int | None = None
    first_content_ns: int | None = None
    """First generated content in any channel: TTFT ends here."""
    first_output_ns: int | None = None
    """First generated content that is not reasoning: TTFO."""
    first_text_ns: int | None = None
    last_content_ns: int | None = None
    """Last read that brought generated content: E2E ends here."""
    content_reads: int = 0
    """Raw reads that brought generated content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one exchange meant, in numbers and names; one row of the table `calls`. `dialect` None: unread (unknown traffic)."""

    exchange_id: ExchangeId
    state: State
    abort_by: str | None = None
    """`client`, `upstream` or `recorder`."""
    dialect: str | None = None
    model: str | None = None
    kind: str = "other"
    streamed: bool | None = None
    stop: str | None = None
    error: str | None = None
    """The provider's own words where it answered with an error."""
    usage: Usage = field(default_factory=Usage)
    usage_raw: str | None = None
    """The provider's usage as JSON, untouched."""
    marks: Marks = field(default_factory=Marks)
    response_id: str | None = None
    previous_response_id: str | None = None
    request_decoded_sha256: bytes | None = None
    """Of the body without its content-encoding; None where it has none, or one that does not decode."""
    response_decoded_sha256: bytes | None = None
    signals: tuple[tuple[str, str], ...] = ()
    """(name, value) of everything on the wire that may say who sent this."""


@dataclass(frozen=True, slots=True)
class ToolTime:
    """How long one tool call took. `source`: `header`, the agent's own measure, or `thread`, the sub-agent that it started."""

    call_id: str | None
    name: str
    took_ns: int
    source: str


@dataclass(frozen=True, slots=True)
class Join:
    """What a call shows of a sub-agent. `mode`: `foreground` (its parent waited) or `background`; `is_joined`: its result is here."""

    thread_key: str
    mode: str
    is_joined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Whose time a gap was. Parts that are not known are None; a tool's time is the agent's own measure where it sent one."""

    tool_ns: int | None = None
    human_ns: int | None = None
    harness_ns: int | None = None
    tools: tuple[ToolTime, ...] = ()
    """Each tool call answered here, parallel ones side by side, as far as it is known how long it took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one call belongs, with the evidence. Keys are stable names: the same traffic read again gives the same keys."""

    exchange_id: ExchangeId
    session_key: str
    thread_key: str
    number: int
    """Place among the thread's calls of the same kind, from 1."""
    kind: str
    client: str | None = None
    """The agent's name, e.g. `claude-code`."""
    agent: str | None = None
    """What the thread runs: `main`, or a sub-agent's type or name."""
    parent_thread_key: str | None = None
    parent_exchange_id: ExchangeId | None = None
    parent_call: str | None = None
    """Id of the tool call that started the thread; None while equal ones cannot be told apart, and where there was none."""
    forked_from: str | None = None
    """Key of the session whose conversation this one goes on with under an id of its own."""
    joins: tuple[Join, ...] = ()
    compaction_of: ExchangeId | None = None
    """The thread's last turn with the old history, where a compaction lies between it and this turn."""
    compacted_by: ExchangeId | None = None
    """The call that made the summary."""
    after: tuple[ExchangeId, ...] = ()
    """What had to be complete before this could start: the thread's previous turn, joined sub-agents, the call that spawned it."""
    gap_ns: int | None = None
    """From the latest end among `after` to this start."""
    gap: Gap = Gap()
    retry_of: ExchangeId | None = None
    source: str = "unknown"
    """The evidence chosen: `header`, `body`, `prefix`, `process`, `label`, ..."""
    confidence: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    """An image or file that stood in a request. `sha256` and `size` are of the decoded bytes; pixels None: no image of a known form."""

    sha256: bytes
    kind: str
    """`image`, `audio` or `file`."""
    mime: str | None
    size: int
    width: int | None = None
    height: int | None = None


# ---- what the store gives back --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeRow:
    """One line of `exchanges`: bodies are not loaded."""

    id: ExchangeId
    session: int | None
    thread: int | None
    agent: str | None
    parent_thread: int | None
    number: int | None
    kind: str
    dialect: str | None
    transport: str
    method: str
    url: str
    model: str | None
    status: int | None
    state: str
    abort_by: str | None
    retry_of: ExchangeId | None
    started_ns: int
    ended_ns: int | None
    headers_ns: int | None
    sent_ns: int | None
    marks: Marks
    usage: Usage
    stop: str | None
    streamed: bool | None
    error: str | None
    request_bytes: int
    request_sha256: str
    response_bytes: int
    response_sha256: str
    chunks: int
    run: RunId | None
    source_exchange: ExchangeId | None
    """For a replayed exchange: the recorded one it repeats."""
    copy: int | None
    ready_ns: int | None
    """For a replayed exchange: Unix-epoch ns at which it was due."""
    after: tuple[ExchangeId, ...] = ()
    gap_ns: int | None = None
    tool_ns: int | None = None
    """Of the gap: whose time it was (see Gap)."""
    human_ns: int | None = None
    harness_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One line of `sessions`. Token sums are over turns and side calls whose figure is known; None when none is."""

    id: int
    key: str
    name: str | None
    client: str | None
    started_ns: int
    ended_ns: int
    threads: int
    turns: int
    side_calls: int
    models: tuple[str, ...]
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    ideal_share: float | None
    note: str | None = None
    forked_from: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One replay. `settings`: policy, declared edits, target as found, versions; `summary`: its figures once it has ended."""

    id: RunId
    started_ns: int
    ended_ns: int | None
    target: str
    settings: dict[str, Any]
    summary: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Binds a replayed exchange to its run and to the recorded one it repeats. `ready_ns`: Unix-epoch ns at which it was due."""

    run_id: RunId
    source_exchange: ExchangeId
    copy: int
    ready_ns: int
