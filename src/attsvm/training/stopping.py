"""When a training ends before its last step: its tolerances, and the plateau of the margins."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attsvm._utils.checks import check_number
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.measures import margin
from attsvm.norms import Norm
from attsvm.problem import Problem


@dataclass(frozen=True)
class Stopping:
    """Tolerances at which a trial stops, with status ``converged``, before it has made all steps.

    Parameters
    ----------
    margin_tol : float, optional
        Stop when the margin grew by less than this fraction while the norm of the weights doubled and the selection
        stayed the same: then the margin ratio no longer grows. It is tested when the number of steps is a power of √2.
        Margins and weights are measured in the norm of the optimizer; for Euclidean steps on factors in the nuclear
        norm.
    gradient_tol : float, optional
        Stop when the Frobenius norm of the gradient of all trained parameters is at most this. Not for mini-batches.

    Raises
    ------
    ProblemError
        If a tolerance is not a number >= 0.

    See Also
    --------
    attsvm.train

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(4, 5, 6, seed=0)
    >>> run = attsvm.train(problem, steps=1_000_000, stop=attsvm.Stopping(margin_tol=1e-2))
    >>> run.status.value, run.steps < 1_000_000
    ('converged', True)
    """

    margin_tol: float | None = None
    gradient_tol: float | None = None

    def __post_init__(self) -> None:
        for name in ("margin_tol", "gradient_tol"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), "a number >= 0", lambda x: x >= 0)


class MarginPlateau:
    """Finds the trials whose margin grew by less than a fraction of itself while the norm of their weights doubled.

    For a fixed selection the margin is the margin ratio times the best possible margin. So both reach their plateau at
    the same step, and no Att-SVM has to be solved. The distance of the ratio to 1 is about proportional to the inverse
    of the norm, so the gain of a doubling is about the remaining gain. Doublings of the number of steps are not used,
    because they say nothing as long as the initial weights are larger than the steps.

    ``norm``: the norm of margin and weights: that of the optimizer.

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


class _Seen(NamedTuple):
    margin: Float[np.ndarray, "*batch"]
    length: Float[np.ndarray, "*batch"]
    exponent: Int[np.ndarray, "*batch"]
    selected: Int[np.ndarray, "*queries"]
