"""The plateau of the margins, at which a training with ``margin_tol`` ends."""

from typing import NamedTuple

import numpy as np
import optax

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import Lp, Norm
from attsvm.optimizers import Steps, limit_of
from attsvm.problem import Problem
from attsvm.training.attention.base import ReducedProblem


class MarginPlateau:
    """Finds the trials whose margin grew by less than a fraction of itself while the norm of their weights doubled.

    For a fixed selection the margin is the margin ratio times the best possible margin. So both reach their plateau at
    the same step, and no Att-SVM has to be solved. The distance of the ratio to 1 is about proportional to the inverse
    of the norm, so the gain of a doubling is about the remaining gain. Doublings of the number of steps are not used,
    because they say nothing as long as the initial weights are larger than the steps.

    ``norm``: the norm in which margins and weights are measured.

    Raises ProblemError if no query of a problem has a token to drop.
    """

    def __init__(self, problem: Problem, norm: Norm, tolerance: float) -> None:
        if not (problem.copies.distinct.sum(axis=-1) > 1).any(axis=(-2, -1)).all():
            raise ProblemError("margin_tol: expected a query with at least two tokens, got none, so there is no margin")
        self.problem, self.norm, self.tolerance = problem, norm, tolerance
        self.seen: list[_Seen] = []

    @staticmethod
    def checks(start: int, stop: int) -> list[int]:
        """The steps, powers of √2, at which margins are compared; they do not depend on how a run is divided."""
        powers = np.rint(np.sqrt(2.0) ** np.arange(2 * int(np.ceil(np.log2(max(stop, 2)))) + 1)).astype(int)
        return sorted({int(step) for step in powers if start < step <= stop})

    def reached(
        self,
        selected: Int[np.ndarray, "*queries"],
        weights: Float[np.ndarray, "*lead"],
        exponent: Int[np.ndarray, "*batch"],
    ) -> Bool[np.ndarray, "*batch"]:
        """Which trials are on their plateau, at the next of the :meth:`checks`.

        ``exponent``: the true weights are 2^exponent · weights.
        """
        margins = np.asarray(margin(self.problem, weights, selected, self.norm))
        now = _Seen(margins, self.norm.values(weights, 2 if self.problem.has_queries else 1), exponent, selected)
        axes = tuple(range(margins.ndim, selected.ndim))
        found, open_ = np.zeros(margins.shape, dtype=bool), np.ones(margins.shape, dtype=bool)
        for before in reversed(self.seen):
            doubled = open_ & (np.ldexp(before.length, before.exponent - now.exponent + 1) <= now.length)
            same = (selected == before.selected).all(axis=axes)
            still = np.abs(margins - before.margin) <= self.tolerance * margins
            found |= doubled & same & still & (margins > 0) & (before.length > 0)
            open_ &= ~doubled
        self.seen.append(now)
        return found


def margin_plateau(
    tolerance: float, optimizer: optax.GradientTransformation, reduced: ReducedProblem | None
) -> MarginPlateau:
    """Make the finder of trials whose margin no longer grows.

    Margins are measured in the norm of the optimiser, or, if it is Euclidean on factors, in the nuclear norm. The norms
    that other steps on factors induce take too long to compute at every check.

    Raises ProblemError if no query of a problem has a token to drop, or the attention is not trained.
    """
    if reduced is None:
        raise ProblemError("margin_tol: expected trained attention, but its parameters are fixed")
    norm: Norm = getattr(optimizer, "norm", None) or Lp(2.0)
    limit = limit_of(Steps(norm=norm), reduced.attention.name, frequencies=reduced.attention.frequencies)
    return MarginPlateau(reduced.problem, limit.norm or norm, tolerance)


class _Seen(NamedTuple):
    margin: Float[np.ndarray, "*batch"]
    length: Float[np.ndarray, "*batch"]
    exponent: Int[np.ndarray, "*batch"]
    selected: Int[np.ndarray, "*queries"]
