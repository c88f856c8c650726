"""Early stopping when the margins no longer grow."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import Norm
from attsvm.problem import Problem


class MarginPlateau:
    """Finds the trials whose margin grew by less than a fraction of itself while the norm of their weights doubled.

    For a fixed selection the margin is the margin ratio times the best margin there is, so its plateau is that of the
    ratio, without a solve. The distance of the ratio to 1 is about proportional to the inverse of the norm, so the gain
    of a doubling is about the gain that remains. A doubling of the steps would mean nothing while the initial weights
    are still larger than the steps.

    Parameters
    ----------
    problem : Problem
    norm : Norm
        The norm of margin and weights: that of the optimizer.
    tolerance : float

    Raises
    ------
    ProblemError
        If no query of a problem has a token to drop.
    """

    def __init__(self, problem: Problem, norm: Norm, tolerance: float) -> None:
        if not (problem.canonical.allowed.sum(axis=-1) > 1).any(axis=(-2, -1)).all():
            raise ProblemError("margin_tol: no query has a token to drop, so there is no margin")
        self.problem, self.norm, self.tolerance = problem, norm, tolerance
        self.seen: list[_Seen] = []

    @staticmethod
    def checks(start: int, stop: int) -> list[int]:
        """The steps, powers of √2, at which margins are compared; they do not depend on how a run is divided."""
        powers = np.rint(np.sqrt(2.0) ** np.arange(2 * int(np.ceil(np.log2(max(stop, 2)))) + 1)).astype(int)
        return sorted({int(step) for step in powers if start < step <= stop})

    def reached(
        self, selected: Int[np.ndarray, "*queries"], weights: Float[np.ndarray, "*lead"]
    ) -> Bool[np.ndarray, "*batch"]:
        """Which trials are on their plateau, at the next of the :meth:`checks`.

        Parameters
        ----------
        selected : int ndarray, shape (*batch, n[, Q])
        weights : ndarray, shape (*batch, d_k, d_q) or (*batch, d_k)
        """
        margins = np.asarray(margin(self.problem, weights, selected, self.norm))
        now = _Seen(margins, self.norm.values(weights, 2 if self.problem.has_queries else 1), selected)
        axes = tuple(range(margins.ndim, selected.ndim))
        found, open_ = np.zeros(margins.shape, dtype=bool), np.ones(margins.shape, dtype=bool)
        for before in reversed(self.seen):
            doubled = open_ & (2 * before.length <= now.length)
            same = (selected == before.selected).all(axis=axes)
            still = np.abs(margins - before.margin) <= self.tolerance * margins
            found |= doubled & same & still & (margins > 0) & (before.length > 0)
            open_ &= ~doubled
        self.seen.append(now)
        return found


class _Seen(NamedTuple):
    margin: Float[np.ndarray, "*batch"]
    length: Float[np.ndarray, "*batch"]
    selected: Int[np.ndarray, "*queries"]
