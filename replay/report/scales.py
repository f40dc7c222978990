"""Axes: round numbers from 0 to a little beyond the largest value, and places in percent. Pure."""

from dataclasses import dataclass
from math import floor, log10


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to `top`, which is round; `step` between ticks."""

    top: float
    step: float

    @property
    def ticks(self) -> list[float]:
        """The round numbers from 0 to the top."""
        return [number * self.step for number in range(round(self.top / self.step) + 1)]

    def percent(self, value: float) -> float:
        """Where a value lies, 0 to 100, to a thousandth."""
        return round(100 * value / self.top, 3)


def scale(largest: float, ticks: int = 5) -> Scale:
    """A scale with about so many ticks, of steps 1, 2, 2.5 or 5 times a power of ten."""
    if largest <= 0:
        return Scale(1, 1)
    step = _step(largest / ticks)
    return Scale(step * -(-largest // step), step)


def _step(least: float) -> float:
    """The smallest round step that is not below `least`."""
    power: float = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= least * (1 - 1e-9))
