"""One hypothesis of a theorem or of a measurement, with the number that decides whether it holds."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Hypothesis:
    """A statement that a theorem or a measurement assumes, and whether it holds.

    Attributes
    ----------
    statement : str
    holds : bool, bool ndarray of shape (*batch_shape,), or None
        None if it was not checked.
    number : float, ndarray of shape (*batch_shape,), or None
        What was found; None if there is no number.
    unit : str
        Of the number: "steps", "sequences", "logits"; empty for a pure number.

    See Also
    --------
    attsvm.Prediction, attsvm.theory.GlobalConditions, attsvm.theory.JointConditions

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> run = attsvm.train(problem, steps=2000, penalty=0.1)
    >>> for one in attsvm.predict_direction(problem, run).hypotheses[:2]:
    ...     print(one)
    the run made at least 2 steps: holds (2,000 steps)
    the weights do not decay: holds (0)
    """

    statement: str
    holds: bool | np.ndarray | None
    number: float | np.ndarray | None = None
    unit: str = ""

    @property
    def verdict(self) -> str:
        """Whether it holds, in words."""
        if self.holds is None:
            return "not checked"
        if np.ndim(self.holds):
            return f"holds for {np.sum(self.holds)} of {np.size(self.holds)}"
        return "holds" if self.holds else "does not hold"

    def __str__(self) -> str:
        if self.number is None or np.ndim(self.number):
            return f"{self.statement}: {self.verdict}"
        number = f"{self.number:,}" if self.unit and float(self.number).is_integer() else f"{self.number:.3g}"
        return f"{self.statement}: {self.verdict} ({number.removesuffix('.0')}{' ' + self.unit if self.unit else ''})"


def at_worst(statement: str, holds: Any, number: Any, unit: str = "", *, least: bool = True) -> Hypothesis:
    """A hypothesis for all trials together, with the least (or largest) number among those that decide."""
    holds, number = np.broadcast_arrays(np.asarray(holds), np.asarray(number, np.float64))
    deciding = number if holds.all() else number[~holds]
    found = float(np.min(deciding) if least else np.max(deciding)) if deciding.size else None
    return Hypothesis(statement, bool(holds.all()), found if found is not None and np.isfinite(found) else None, unit)


def written_hypotheses(hypotheses: tuple[Hypothesis, ...]) -> list[dict[str, Any]]:
    """Hypotheses of all trials together, as JSON-able data."""
    return [
        {"statement": one.statement, "holds": one.holds, "number": one.number, "unit": one.unit} for one in hypotheses
    ]


def read_hypotheses(written: list[dict[str, Any]]) -> tuple[Hypothesis, ...]:
    """Read what :func:`written_hypotheses` wrote."""
    return tuple(Hypothesis(**one) for one in written)
