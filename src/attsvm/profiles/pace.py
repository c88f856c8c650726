"""Learning rates that are found while an optimiser trains, from the change of a logit in a step."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from attsvm.profiles.stepped import ProfileTask, RateFactor, Stepped

_FIRST_LOOKS = (1, 2, 3, 5, 7, 11, 15)
_EARLY_STEPS = 200
_MUCH = 4.0
_ATTEMPTS = 12
_LARGEST_CORRECTION = 1e4


class ReadingPace(RateFactor):
    """A factor of the learning rate that is corrected between stretches of steps.

    In the median problem, step k is to change a logit by ``change`` (1 + k/1000)^(-1/3). The factor is the same for all
    problems, and constant between two of the :meth:`marks`.
    """

    def __init__(self, change: float, factor: float) -> None:
        self._change, self.first = change, factor
        self.constant: float = factor
        self._factors = {0: factor}

    def __call__(self, step: Any) -> Any:
        return self.constant

    def restart(self) -> None:
        """Begin another run. It gets the factors of the first one, whatever its changes of a logit are."""
        self.constant = self.first

    def marks(self, steps: int) -> Iterable[int]:
        """Numbers of steps after which the factor is corrected.

        They are odd, so that what an optimiser does in each second, sixth or tenth step is not taken for the change of
        a usual step.
        """
        step = _FIRST_LOOKS[-1] + 2
        while step < steps:
            yield step
            step = 2 * math.ceil(0.55 * step) + 1

    def correct(self, step: int, logit_change: np.ndarray) -> None:
        """Move the factor halfway, on a logarithmic scale, to the one that gives the wanted change.

        All the way if the steps are much too long.
        """
        change = float(np.median(logit_change))
        if step not in self._factors and 0 < change < math.inf:
            wanted = self._change * (1 + step / 1000) ** (-1 / 3)
            correction = min(wanted / change, 10.0)
            self.constant *= correction if correction < 1 / _MUCH else correction**0.5
        self.constant = self._factors.setdefault(step, self.constant)

    def growth(self, step: int, later: int) -> float:
        """1, because the factor follows the change of a logit."""
        return 1.0


def first_factor(one: Stepped, task: ProfileTask, wanted: float) -> float:
    """The factor of the learning rate with which early steps change a logit by about ``wanted``.

    It is searched by short runs. Some optimisers find the length of their steps by themselves, and lengthen them by
    orders of magnitude soon after the start; a factor that is small enough for their longest early step is kept then,
    and corrected later.
    """
    looks = (*_FIRST_LOOKS, *ReadingPace(wanted, 1.0).marks(_EARLY_STEPS))
    factor, task, was_long = 1.0, replace(task, looks=looks, callback=None), False
    for _ in range(_ATTEMPTS):
        pace, changes = ReadingPace(wanted, factor), []
        for look in one.trajectory(task, pace):
            changes.append(float(np.median(look.logit_change)) if look.finite else math.inf)
            if look.step not in _FIRST_LOOKS:
                pace.correct(look.step, look.logit_change)
            if changes[-1] > _MUCH * wanted:
                break
        is_long = max(changes) > _MUCH * wanted
        # later steps are corrected by the pace
        largest = max(changes if is_long else changes[: len(_FIRST_LOOKS)])
        if not is_long and (was_long or largest >= wanted / 2):
            break
        correction = wanted / largest if largest > 0 else math.inf
        factor *= min(max(correction, 1 / _LARGEST_CORRECTION), _LARGEST_CORRECTION)
        was_long = was_long or is_long
    return factor
