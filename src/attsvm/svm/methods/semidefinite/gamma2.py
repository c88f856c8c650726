"""The least γ2 norm, by the largest margin over its unit ball."""

import numpy as np

from attsvm.norms import Gamma2, Norm
from attsvm.norms.elliptope import Balance, Diagonal, Square, Squares, Vector, largest_margin
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.pair_rows import Reduced, reduced_rows
from attsvm.svm.methods.batches import undecided
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.frobenius import solve_frobenius
from attsvm.svm.methods.iteration import Watch
from attsvm.svm.methods.registry import solver
from attsvm.svm.methods.semidefinite.pair_margins import PairMargins

ELLIPTOPE = "elliptope"

NEAR = 0.1
"""Multipliers of the Frobenius norm are raised to this, relative to the largest, to start inside the cone."""


WHY = "the norm is a semidefinite program with rows of rank one"


@solver(Gamma2, methods=(ELLIPTOPE,))
def solve_gamma2(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least γ2 norm; see :func:`attsvm.norms.elliptope.largest_margin`.

    Whether a selection can be kept does not depend on the norm: the Farkas multipliers are those of the Frobenius norm.
    """
    watch = Watch(settings.report)
    each = [_solve(constraints[index], settings.max_steps, watch) for index in np.ndindex(constraints.batch_shape)]
    return Candidate.joined(each).with_axes_of(constraints)


def _solve(constraints: Constraints, max_steps: int | None, watch: Watch) -> Candidate:
    """One problem; the answer in the Frobenius norm if it is infeasible, or if the user has stopped the solve."""
    frobenius = solve_frobenius(constraints, Settings())
    flat = constraints.with_one_axis()
    if frobenius.ray.any() or not undecided(flat).any() or watch.stopped:
        return frobenius
    # the norm is that of these coordinates, so the weights are not restricted to the span of the data
    reduced = reduced_rows(flat, left=False, right=False)
    unit = reduced.unit
    start = unit.gather(frobenius.multipliers[None])[0]
    least = NEAR * np.abs(start).max()
    start = np.where(unit.equality[0], start, np.maximum(start, least))
    split = constraints.weights_shape[0]
    balance = _KeptDiagonal(sum(constraints.weights_shape))
    rows = _WatchedMargins(reduced, balance, max_steps, watch)
    try:
        found = largest_margin(rows, balance, start, split)
        corner, multipliers, steps = found.matrices[0, :split, split:], found.multipliers, found.steps
    except _Stopped as stopped:
        corner, multipliers, steps = stopped.corner, stopped.multipliers, stopped.steps
    spread = unit.spread(multipliers[None], constraints.inequality.shape)[0]
    return Candidate(corner, spread, frobenius.ray, np.asarray(steps), ELLIPTOPE, WHY)


class _Stopped(Exception):
    """The last point of an iteration that was stopped."""

    def __init__(self, corner: np.ndarray, multipliers: Vector, steps: int) -> None:
        super().__init__("stopped")
        self.corner, self.multipliers, self.steps = corner, multipliers, steps


class _KeptDiagonal(Diagonal):
    """The diagonal, which remembers the last y."""

    def spread(self, free: Vector) -> Square:
        """The diagonal matrix."""
        self.free = free
        return super().spread(free)


class _WatchedMargins(PairMargins):
    """The rows of one head. Each step of the iteration needs their equations once, and is reported then."""

    def __init__(self, reduced: Reduced, kept: _KeptDiagonal, max_steps: int | None, watch: Watch) -> None:
        super().__init__([reduced.rows], [reduced.unit])
        self._kept, self._split = kept, reduced.rows.left.shape[-1]
        self._max_steps, self._watch, self._step = max_steps, watch, 0

    def adjoint(self, multipliers: Vector) -> np.ndarray:
        """A*(λ). That of a point is computed before its equations."""
        self._multipliers = multipliers
        return super().adjoint(multipliers)

    def equations(self, matrices: Squares, inverses: Squares, balance: Balance) -> tuple[np.ndarray, np.ndarray]:
        """Those of the point, unless it is the last one."""
        corners = matrices[:, : self._split, self._split :]
        asked = self.right > 0
        margin = float((self.apply(corners)[asked] / self.right[asked]).min())
        gap = 1 - max(margin, 0.0) / float(self._kept.free.sum())  # b'λ = 1
        if self._watch(self._step, max(gap, 0.0)) or self._step == self._max_steps:
            raise _Stopped(corners[0], self._multipliers, self._step)
        self._step += 1
        return super().equations(matrices, inverses, balance)
