"""Every latency figure the product prints: a function of one exchange, and a row that says what it is.

Pure. Definitions are those of docs/reference/metrics.md, which is generated from METRICS. A figure that cannot be said is None, never
0; an exchange that failed has none. It does not know where rows come from, nor how figures are shown.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from replay.statistics import Distribution, distribution
from storage.records import ExchangeRow, State, Usage

MS = 1e6


@dataclass(frozen=True, slots=True)
class Measured:
    """One exchange and, for a replay, the recorded one it repeats."""

    row: ExchangeRow
    source: ExchangeRow | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of one exchange. `of_failed`: also said of an exchange that failed."""

    name: str
    unit: str
    definition: str
    value: Callable[[Measured], float | None]
    of_failed: bool = False


def failure_of(row: ExchangeRow) -> str | None:
    """Why an exchange counts as failed: its status, its state, or the provider's error inside a stream. None: it completed."""
    if row.status is not None and not 200 <= row.status < 300:
        return f"status {row.status}"
    if row.state != State.COMPLETE:
        return row.state if row.status is not None else f"no answer ({row.error})" if row.error else "no answer"
    if row.error:
        return "error in the stream"
    return f"not an answer of {row.dialect}" if _says_nothing(row) else None


def _says_nothing(row: ExchangeRow) -> bool:
    """An answer to a model call in which its dialect finds nothing at all: a web page, an empty body, bytes that are no JSON."""
    asked = row.dialect is not None and row.status is not None and row.kind != "count_tokens"
    return asked and row.stop is None and row.usage == Usage() and row.marks.first_content_ns is None


def _since_start_ms(at_ns: int | None) -> float | None:
    return None if at_ns is None else at_ns / MS


def _since_ready_ms(measured: Measured, at_ns: int | None) -> float | None:
    row = measured.row
    return None if at_ns is None or row.ready_ns is None else (row.started_ns + at_ns - row.ready_ns) / MS


def ttft_ms(measured: Measured) -> float | None:
    """First generated content in any channel, since the start."""
    return _since_start_ms(measured.row.marks.first_content_ns)


def ttft_ready_ms(measured: Measured) -> float | None:
    """First generated content, since the turn was due."""
    return _since_ready_ms(measured, measured.row.marks.first_content_ns)


def ttfo_ms(measured: Measured) -> float | None:
    """First generated content that is not reasoning."""
    return _since_start_ms(measured.row.marks.first_output_ns)


def ttfb_ms(measured: Measured) -> float | None:
    """First byte of the body."""
    return _since_start_ms(measured.row.marks.first_byte_ns)


def e2e_ms(measured: Measured) -> float | None:
    """Last generated content."""
    return _since_start_ms(measured.row.marks.last_content_ns)


def close_ms(measured: Measured) -> float | None:
    """The stream closed."""
    return _since_start_ms(measured.row.ended_ns)


def lag_ms(measured: Measured) -> float | None:
    """How late the turn was started."""
    row = measured.row
    return None if row.ready_ns is None else (row.started_ns - row.ready_ns) / MS


def client_delay_ms(measured: Measured) -> float | None:
    """From the start to the last request byte written."""
    return _since_start_ms(measured.row.sent_ns)


def itl_ms(measured: Measured) -> float | None:
    """Time per output token after the first read that brought some."""
    row, marks = measured.row, measured.row.marks
    if not row.streamed or marks.first_content_ns is None or marks.last_content_ns is None:
        return None
    if row.usage.output is None or row.usage.output < 2 or marks.content_reads < 2:
        return None
    return (marks.last_content_ns - marks.first_content_ns) / MS / (row.usage.output - 1)


def tokens_per_read(measured: Measured) -> float | None:
    """Output tokens per raw read that brought content."""
    row = measured.row
    return row.usage.output / row.marks.content_reads if row.usage.output and row.marks.content_reads else None


def output_tokens(measured: Measured) -> float | None:
    """Tokens generated, reasoning included, as the server says."""
    return measured.row.usage.output


def osl_deviation(measured: Measured) -> float | None:
    """How far the output is from the recorded length, as a share of it."""
    recorded = measured.source.usage.output if measured.source else None
    now = measured.row.usage.output
    return None if not recorded or now is None else (now - recorded) / recorded


def uncached_tokens(measured: Measured) -> float | None:
    """Prompt tokens that had to be computed."""
    usage = measured.row.usage
    return None if usage.prompt is None or usage.cached is None else usage.prompt - usage.cached


METRICS: tuple[Metric, ...] = (
    Metric(
        "ttft_ms",
        "ms",
        "From the start to the raw read that completed the first generated content in any channel: text, reasoning, tool name or "
        "argument, refusal. Role-only deltas, pings, openings, empty deltas, usage do not count. NULL for a turn that generated nothing.",
        ttft_ms,
    ),
    Metric(
        "ttft_ready_ms",
        "ms",
        "The same from the moment the turn was due (all it waited for was over and its gap had passed): what a late client cannot hide.",
        ttft_ready_ms,
    ),
    Metric("ttfo_ms", "ms", "From the start to the first generated content that is not reasoning.", ttfo_ms),
    Metric("ttfb_ms", "ms", "From the start to the first byte of the body.", ttfb_ms),
    Metric("e2e_ms", "ms", "From the start to the last generated content.", e2e_ms),
    Metric("close_ms", "ms", "From the start to the close of the stream.", close_ms),
    Metric(
        "itl_ms",
        "ms",
        "(last content - first content) / (output tokens - 1), the first read taken as one token; NULL when not streamed, when fewer "
        "than two tokens or reads brought content, or when the server did not say how many. A gap between reads is never called this.",
        itl_ms,
    ),
    Metric(
        "lag_ms",
        "ms",
        "Start minus due, of every turn, failed and dependent ones included: how late the client was.",
        lag_ms,
        of_failed=True,
    ),
    Metric(
        "client_delay_ms",
        "ms",
        "From the start to the last request byte handed to the kernel; for a recording, to the last byte passed on.",
        client_delay_ms,
    ),
    Metric(
        "tokens_per_read",
        "tokens",
        "Output tokens per raw read that brought content: above 1 where a server sends several at once.",
        tokens_per_read,
    ),
    Metric("output_tokens", "tokens", "Tokens generated, reasoning included, from the server's usage.", output_tokens),
    Metric(
        "osl_deviation",
        "share",
        "(output tokens - recorded output tokens) / recorded output tokens; beyond 0.1 either way a turn is out of band.",
        osl_deviation,
    ),
    Metric(
        "uncached_tokens",
        "tokens",
        "Prompt tokens minus reported cached tokens; NULL where cached tokens are not reported.",
        uncached_tokens,
    ),
)
"""Every per-exchange figure, in the order they are shown."""


def named(name: str) -> Metric:
    """The metric of this name. Raises KeyError."""
    return {metric.name: metric for metric in METRICS}[name]


def value(metric: Metric, measured: Measured) -> float | None:
    """The figure of one exchange; None when it failed, unless the metric is said of failed ones too."""
    if failure_of(measured.row) is not None and not metric.of_failed:
        return None
    return metric.value(measured)


def values(metric: Metric, turns: Iterable[Measured]) -> list[float]:
    """The known figures of many exchanges."""
    return [known for turn in turns if (known := value(metric, turn)) is not None]


def spread(metric: Metric, turns: Iterable[Measured]) -> Distribution:
    """The distribution of a metric over exchanges."""
    return distribution(values(metric, turns))


def content_gaps_ms(content_at_ns: Sequence[int]) -> list[float]:
    """ICL: the gaps between raw reads that brought content, given the stamps of their deltas (equal stamps are one read)."""
    reads = sorted(set(content_at_ns))
    return [(after - before) / MS for before, after in pairwise(reads)]


def makespan_s(rows: Sequence[ExchangeRow]) -> float | None:
    """Last close minus first due (start, where nothing was due), over every exchange that has an end."""
    ends = [row.started_ns + row.ended_ns for row in rows if row.ended_ns is not None]
    if not ends:
        return None
    return (max(ends) - min(row.started_ns if row.ready_ns is None else row.ready_ns for row in rows)) / 1e9


def total(figures: Iterable[int | None]) -> int | None:
    """The sum of the known figures; None when none is known."""
    known = [figure for figure in figures if figure is not None]
    return sum(known) if known else None


def reference() -> str:
    """The table of docs/reference/metrics.md, generated."""
    lines = ["| metric | unit | definition |", "|---|---|---|"]
    lines += [f"| `{metric.name}` | {metric.unit} | {metric.definition} |" for metric in METRICS]
    return "\n".join(lines) + "\n"
