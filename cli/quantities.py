"""Ages and sizes as people type them: `30d`, `12h`, `1.5GB`."""

import re
from collections.abc import Mapping
from typing import Any

import click

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_BYTES = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_TYPED = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", re.ASCII)


class _Quantity(click.ParamType[int]):
    """A number with a unit, as a whole number of the smallest."""

    def __init__(self, name: str, units: Mapping[str, int], smallest: int, example: str) -> None:
        self.name = name
        self._units, self._smallest, self._example = units, smallest, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; wrong usage where it is none, has no unit, or is nothing."""
        if isinstance(value, int):
            return value
        match = _TYPED.fullmatch(str(value))
        unit = self._units.get(match[2].lower()) if match else None
        if match is None or unit is None or not float(match[1]):
            self.fail(f"{value!r} is no {self.name}: give a number and a unit, like {self._example}", param, ctx)
        return round(float(match[1]) * unit * self._smallest)


AGE = _Quantity("age", _SECONDS, 10**9, "12h or 30d")
"""In ns."""
SIZE = _Quantity("size", _BYTES, 1, "500MB or 10GB")
"""In bytes."""
