"""What commands print: JSON documents and tables on stdout, talk on stderr, and figures as people read them.

Captured text is hostile: `plain` takes the control characters out of it before a terminal sees it. It knows no engine.
"""

import os
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click

# ECMA-48 sequences: CSI, the string ones (OSC, DCS, SOS, PM, APC) up to their end, and two-character escapes.
ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|(?:\x1b[P\]X^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]?"
)
NARROWEST = 8
GAP = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. `right`: figures; `whole`: never cut short; `optional`: left out first where the terminal is narrow."""

    title: str
    right: bool = False
    whole: bool = False
    optional: bool = False


type Cell = str | int | None


def document(value: Any) -> None:
    """Prints one JSON document on stdout, as one line."""
    import orjson

    click.echo(orjson.dumps(value))


def say(text: str = "") -> None:
    """Talk and progress: one line on stderr, so that stdout holds the result only."""
    click.echo(text, err=True)


def paragraph(text: str) -> None:
    """Prints a text on stdout in lines of at most 80 columns; what follows its first line is set in as that is. Words stay whole."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    for line in textwrap.wrap(text, 80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False):
        click.echo(line)


def tint(text: str, colour: str, stream: TextIO | None) -> str:
    """The text in a colour, where `stream` is a terminal that wants one (NO_COLOR, TERM=dumb). None: it is closed."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream is not None and stream.isatty()
    return click.style(text, fg=colour) if wanted else text


# ---- captured text -------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Captured text as one line that is safe to print: no escape sequences, no control or direction-changing characters."""
    return " ".join(plain_lines(text).split())


def plain_lines(text: str) -> str:
    """As `plain`, with line ends and tabs kept."""
    text = ESCAPES.sub("", text.replace("\r\n", "\n"))
    return "".join(character if character in "\n\t" or not unsafe(character) else "\ufffd" for character in text)


def unsafe(character: str) -> bool:
    """Control (Cc), format and direction (Cf), surrogate (Cs) and line separator (Zl, Zp) characters."""
    return (character > "~" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")) or character < " " or character == "\x7f"


def width(text: str) -> int:
    """Columns of a terminal that the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, columns: int) -> str:
    """The text cut to so many terminal columns, with an ellipsis where something is missing."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return text + "…"


# ---- tables --------------------------------------------------------------------------------------------------------


def table(rows: Sequence[Sequence[Cell]], columns: Sequence[Column | str], *, fit: int | None = None) -> None:
    """Prints rows under their columns' titles, no wider than the terminal (80 columns where there is none); None shows as `-`."""
    for line in table_lines(rows, columns, fit or terminal_columns()):
        click.echo(line)


def terminal_columns() -> int:
    """How wide the terminal is; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def table_lines(rows: Sequence[Sequence[Cell]], columns: Sequence[Column | str], fit: int) -> list[str]:
    """The lines of `table`. Text columns are cut first, the widest most; then optional columns are left out, from the right."""
    heads = [column if isinstance(column, Column) else Column(title=column) for column in columns]
    cells = [[column.title for column in heads], *(["-" if cell is None else plain(str(cell)) for cell in row] for row in rows)]
    shown = list(range(len(heads)))
    widths = fitted(heads, cells, shown, fit)
    while total(widths) > fit and any(heads[index].optional for index in shown):
        shown.remove(next(index for index in reversed(shown) if heads[index].optional))
        widths = fitted(heads, cells, shown, fit)
    return [aligned([row[index] for index in shown], [heads[index] for index in shown], widths) for row in cells]


def fitted(heads: Sequence[Column], cells: Sequence[Sequence[str]], shown: Sequence[int], fit: int) -> list[int]:
    """The widths of the shown columns, those of text cut down as far as needed and sensible."""
    widths = [max(width(row[index]) for row in cells) for index in shown]
    soft = [place for place, index in enumerate(shown) if not (heads[index].right or heads[index].whole)]
    while total(widths) > fit and any(widths[place] > NARROWEST for place in soft):
        widest = max(soft, key=lambda place: widths[place])
        widths[widest] -= 1
    return widths


def total(widths: Sequence[int]) -> int:
    """Columns a line takes, gaps included."""
    return sum(widths) + GAP * (len(widths) - 1)


def aligned(cells: Sequence[str], heads: Sequence[Column], widths: Sequence[int]) -> str:
    """One line of a table."""
    parts = []
    for cell, head, columns in zip(cells, heads, widths, strict=True):
        text = shortened(cell, columns)
        space = " " * (columns - width(text))
        parts.append(space + text if head.right else text + space)
    return (" " * GAP).join(parts).rstrip()


# ---- figures -------------------------------------------------------------------------------------------------------


def count(number: int | None) -> str | None:
    """A number of things, in groups of three: `12,345`."""
    return None if number is None else f"{number:,}"


def share(part: float | None) -> str | None:
    """A share of one as a percentage: `95.2 %`."""
    return None if part is None else f"{part * 100:.1f} %"


def milliseconds(value_ms: float | None) -> str | None:
    """A latency: `0.42 ms`, `8.4 ms`, `412 ms`, `12.3 s`."""
    if value_ms is None:
        return None
    if abs(value_ms) >= 10_000:
        return f"{value_ms / 1000:.1f} s"
    return f"{value_ms:,.0f} ms" if abs(value_ms) >= 100 else f"{value_ms:.1f} ms" if abs(value_ms) >= 1 else f"{value_ms:.2f} ms"


def duration(seconds: float | None) -> str | None:
    """How long something took: `0.4 s`, `12.3 s`, `3 min 05 s`, `2 h 05 min`."""
    if seconds is None:
        return None
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def size(length_bytes: int | None) -> str | None:
    """A number of bytes: `812 B`, `12.3 kB`, `4.5 MB`."""
    if length_bytes is None:
        return None
    value = float(length_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError
