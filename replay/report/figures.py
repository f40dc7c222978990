"""Figures as people read them, the same in every format: what is unknown is a dash, units stand with the number. Pure."""

NONE = "–"


def count(number: float | None) -> str:
    """Things: `12,345`."""
    return NONE if number is None else f"{round(number):,}"


def share(part: float | None) -> str:
    """A share of one: `95.2 %`."""
    return NONE if part is None else f"{part * 100:.1f} %"


def milliseconds(value_ms: float | None) -> str:
    """A latency in ms without its unit, three figures that count: `0.42`, `8.41`, `41.2`, `1,234`."""
    if value_ms is None:
        return NONE
    size = abs(value_ms)
    return f"{value_ms:,.0f}" if size >= 100 else f"{value_ms:.1f}" if size >= 10 else f"{value_ms:.2f}"


def duration(seconds: float | None) -> str:
    """`0.42 s`, `12.3 s`, `3 min 05 s`, `2 h 05 min`."""
    if seconds is None:
        return NONE
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def ratio(value: float | None) -> str:
    """b against a: `1.312`."""
    return NONE if value is None else f"{value:.3f}"


def interval(ends: list[float] | None) -> str:
    """`1.221 to 1.403`."""
    return NONE if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def of_metric(name: str, value: float | None) -> str:
    """A figure of a metric by its unit."""
    return milliseconds(value) if name.endswith("_ms") else count(value)
