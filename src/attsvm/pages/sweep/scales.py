"""Scales of axes and of colours: linear, or logarithmic for positive numbers that span decades."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

DECADES = 2.0
"""Numbers that span at least this many decades are shown on a logarithmic scale."""


@dataclass(frozen=True)
class Scale:
    """From numbers to [0, 1]."""

    low: float  # low, high: what is shown at 0 and at 1
    high: float
    log: bool

    @classmethod
    def of(cls, values: Iterable[float], decades: float = DECADES) -> "Scale":
        """The scale that shows these numbers; what is not finite is left out."""
        numbers = np.asarray([*values], dtype=float)
        numbers = numbers[np.isfinite(numbers)]
        if not numbers.size:
            return cls(0.0, 1.0, False)
        low, high = float(numbers.min()), float(numbers.max())
        return cls(low, high, low > 0 and high >= 10**decades * low)

    def place(self, value: float) -> float:
        """Where a number is, in [0, 1]; the middle if all numbers are equal."""
        if self.high == self.low:
            return 0.5
        if self.log:
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        return (value - self.low) / (self.high - self.low)

    def rounded(self) -> "Scale":
        """The scale with round ends, for an axis."""
        if self.high == self.low:
            return self
        if self.log:
            return Scale(10 ** _floor(np.log10(self.low)), 10 ** -_floor(-np.log10(self.high)), True)
        step = self._step()
        return Scale(step * _floor(self.low / step), -step * _floor(-self.high / step), False)

    def ticks(self) -> list[float]:
        """Up to six round numbers on the scale."""
        if self.high == self.low:
            return [self.low]
        if self.log:
            powers = np.arange(-_floor(-np.log10(self.low)), _floor(np.log10(self.high)) + 1.0)
            return [float(10**power) for power in powers[:: 1 + len(powers) // 6]]
        step = self._step()
        return [float(step * i) for i in range(-_floor(-self.low / step), _floor(self.high / step) + 1)]

    def _step(self) -> float:
        """The distance of the ticks of a linear scale: 1, 2, 2.5 or 5 times a power of ten."""
        raw = (self.high - self.low) / 4
        unit = float(10 ** np.floor(np.log10(raw)))
        return unit * min(x for x in (1, 2, 2.5, 5, 10) if x * unit >= raw * (1 - 1e-9))


def _floor(value: float) -> int:
    """The largest integer that is not above a number, up to its rounding errors."""
    return int(np.floor(value + 1e-9))


UNIT = Scale(0.0, 1.0, False)
"""The scale of shares."""
