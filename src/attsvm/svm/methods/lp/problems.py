"""Problems in an ℓp norm under linear rows, many together, with the estimate of the gap that all ℓp methods use."""

from typing import Generic, NamedTuple, TypeVar

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.svm.constraints.rows import BatchedUnitRows, Chosen, RowProducts, RowVector, Vector

R = TypeVar("R", bound=RowProducts)


def lp_norm(x: Vector, p: float) -> Float[np.ndarray, "N 1"]:
    """Compute ℓp norms along the last axis, which is kept, without overflow."""
    largest = np.maximum(np.max(np.abs(x), axis=-1, keepdims=True), np.finfo(float).tiny)
    if np.isinf(p):
        return np.asarray(largest)
    return np.asarray(largest * np.sum(np.abs(x / largest) ** p, axis=-1, keepdims=True) ** (1 / p))


def dual_exponent(p: float) -> float:
    """Return the exponent q of the dual norm, 1/p + 1/q = 1."""
    return np.inf if p == 1 else 1.0 if np.isinf(p) else p / (p - 1)


class LpProblems(NamedTuple, Generic[R]):
    """The least ‖w‖_p with Aw ≥ b, and Aw = b where ``equality``; each of N problems has a positive right side."""

    rows: R  # A, of unit norm
    right: RowVector
    gain: RowVector  # the right sides, 0 where a problem does not have the row
    equality: Bool[np.ndarray, "N m"]
    p: float

    @classmethod
    def of(cls, rows: R, unit: BatchedUnitRows, p: float) -> "LpProblems[R]":
        return cls(rows, unit.right, unit.gain, unit.equality, p)

    def divided(self, size: Vector) -> "LpProblems[R]":
        """Return the problems with right sides divided by a number of each."""
        return self._replace(right=self.right / size, gain=self.gain / size)

    def select(self, some: Chosen) -> "LpProblems[R]":
        """Return some of the problems; all of them without a copy of the rows."""
        if len(some) == len(self.right) and some.dtype != bool:
            return self
        return LpProblems(self.rows.keep(some), self.right[some], self.gain[some], self.equality[some], self.p)

    def gap(
        self, weights: Vector, multipliers: RowVector, image: RowVector, gradient: Vector
    ) -> Float[np.ndarray, " N"]:
        """Estimate the relative gap after scaling; ∞ while a margin is not positive.

        The violations of equalities and rows with right side 0 or less, which scaling cannot repair, are added.
        ``image``, ``gradient``: Aw and A'λ; the multipliers of inequalities are not negative.
        """
        right = self.right
        with np.errstate(all="ignore"):
            asked = right > 0
            # w/margin is feasible, and λ/‖A'λ‖_q has the dual norm 1
            margin = np.min(np.where(asked, image / right, np.inf), axis=-1, keepdims=True)
            value = lp_norm(weights, self.p) / margin
            bound = np.vecdot(self.gain, multipliers)[..., None] / lp_norm(gradient, dual_exponent(self.p))
            error = np.abs(value - bound) / value
            rigid = ~asked & (right == self.gain)
            if rigid.any():
                lacking = np.where(self.equality, np.abs(image), np.maximum(right * margin - image, 0)) * rigid
                error += np.max(lacking, axis=-1, keepdims=True) / np.sqrt(np.vecdot(weights, weights))[..., None]
            error = np.where(margin > 0, error, np.inf)
        return np.where(np.isfinite(error), error, np.inf)[..., 0]
