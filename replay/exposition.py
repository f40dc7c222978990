"""Prometheus's text format as samples: name, labels, value. Pure. It does not know what any engine counts.

A line that is no sample of the format is left out, as are comments, timestamps and exemplars: what is read here is never all of a page.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

type Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: `name{label="value"} 12`. The value may be infinite or not a number."""

    name: str
    labels: Labels
    value: float


# https://prometheus.io/docs/instrumenting/exposition_formats/#text-format-details
_QUOTED = r'"((?:\\.|[^"\\])*)"'
_INSIDE = r'(?:[^"}]|"(?:\\.|[^"\\])*")*'
_SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]*\{{({_INSIDE})\}}[ \t]*|[ \t]+)([^ \t_]+)(?:[ \t]+-?\d+)?[ \t]*(?:$|#)")
_LABEL = re.compile(rf"[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*{_QUOTED}[ \t]*(?:,|$)")
_ESCAPED = re.compile(r"\\(.)")


def samples(text: str) -> tuple[Sample, ...]:
    """Every sample of a page, in its order."""
    return tuple(_samples(text))


def _samples(text: str) -> Iterator[Sample]:
    for line in text.split("\n"):
        matched = _SAMPLE.match(line.strip(" \t\r"))
        if matched is None:
            continue
        name, inside, said = matched.groups()
        labels = _labels(inside or "")
        value = _value(said)
        if labels is not None and value is not None:
            yield Sample(name, labels, value)


def _labels(text: str) -> Labels | None:
    """The labels between the braces; None when they are not what the format allows."""
    found, at = [], 0
    while text[at:].strip(" \t"):
        matched = _LABEL.match(text, at)
        if matched is None:
            return None
        found.append((matched[1], _ESCAPED.sub(_unescaped, matched[2])))
        at = matched.end()
    return tuple(found)


def _unescaped(matched: re.Match[str]) -> str:
    """Backslash, quote and line feed are escaped; any other backslash stands for itself."""
    return {"\\": "\\", '"': '"', "n": "\n"}.get(matched[1], matched[0])


def _value(text: str) -> float | None:
    """A number as Go writes it: `+Inf` and `NaN` too."""
    try:
        return float(text)
    except ValueError:
        return None
