"""Mehrotra's predictor-corrector step of an interior-point method, for every cone.

On the central path the pairs of primal and dual quantities (slacks and multipliers, or two positive definite matrices)
have the product μ. A step linearises these equations. It is factored once and solved twice: the *predictor* aims at
μ = 0 and shows how far μ can fall; the *corrector* aims there, with the products of the predictor's changes added,
which the linearisation leaves out. The cones differ in the equations alone (:class:`Equations`).

References: Mehrotra (1992), *On the implementation of a primal-dual interior point method*. Toh, Todd and Tütüncü
(1999), *SDPT3*, for different primal and dual step lengths.
"""

from typing import Protocol, TypeVar

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from attsvm._utils.linear_algebra import diagonal_of
from attsvm._utils.shapes import Bool, Float
from attsvm.svm.constraints.rows import RowVector

Values = Float[np.ndarray, " N"]
Lengths = tuple[Values, Values]
"""Primal and dual step lengths."""

S = TypeVar("S")

POWER = 2
"""μ falls to the square of what the predictor reaches: 1 and 3 take up to 15 % more steps in one of the cones."""

SHORTEST = 0.9
"""A step goes at least this part of the way to the boundary."""


class Equations(Protocol[S]):
    """The linearised equations at one iterate, factored."""

    mu: Values
    failed: Bool[np.ndarray, " N"]  # where the factorisation failed: these problems end with NaN

    def predictor(self) -> S:
        """Return the step to μ = 0."""

    def corrector(self, aim: Values, predictor: S) -> S:
        """Return the step to μ = ``aim``, with the products of the predictor's changes."""

    def longest(self, step: S) -> Lengths:
        """Return the lengths at which a step reaches the boundary, at most 10."""

    def mu_after(self, step: S, lengths: Lengths) -> Values:
        """Return μ after a step of these lengths."""


def raised(multipliers: np.ndarray, equality: np.ndarray) -> np.ndarray:
    """Return multipliers of at least a tenth of the largest, to start inside the cone; those of equalities as given."""
    least = 0.1 * np.max(np.abs(multipliers), axis=-1, keepdims=True)
    return np.where(equality, multipliers, np.maximum(multipliers, least))


def predictor_corrector(equations: Equations[S]) -> tuple[S, Lengths]:
    """Return a step and its lengths."""
    mu = equations.mu
    predictor = equations.predictor()
    primal, dual = equations.longest(predictor)
    ahead = equations.mu_after(predictor, (np.minimum(1.0, primal), np.minimum(1.0, dual)))
    step = equations.corrector(mu * np.clip(ahead / mu, 1e-3, 1.0) ** POWER, predictor)

    # near the optimum a step may go closer to the boundary, which makes the last steps fast; but a quantity that
    # shortens the step would nearly become 0, and all later steps would be short
    def inside(longest: Values) -> Values:
        part = np.maximum(SHORTEST, 1 - np.maximum(np.sqrt(mu), (1 - longest) / 2))
        return np.where(equations.failed, np.nan, np.minimum(1.0, part * longest))

    primal, dual = equations.longest(step)
    return step, (inside(primal), inside(dual))


class RowSystem:
    """Factors of M = A H A* + diag(s/λ), to which the equations of every cone are reduced, with 0 < H.

    ``failed``: where M is not numerically positive definite; the solution is 0 there.
    """

    def __init__(self, matrix: Float[np.ndarray, "N m m"], ratio: RowVector) -> None:
        """Factor A H A*, which is overwritten, plus diag(``ratio``)."""
        diagonal = diagonal_of(matrix)
        # dependent equalities (two sets that share tokens) make the matrix singular: a ridge of the size of rounding
        # errors is added, and the residual of the next step corrects its effect
        diagonal *= 1 + np.where(ratio > 0, 1e-15, 1e-14)
        diagonal += ratio
        answers = [dpotrf(one.T, lower=True, overwrite_a=True, clean=False) for one in matrix]
        self.factors, self.lower = [factor for factor, _ in answers], True
        self.failed = np.array([failed != 0 for _, failed in answers])

    @classmethod
    def of_halves(cls, halves: Float[np.ndarray, "N m D"], ratio: RowVector) -> "RowSystem":
        """Factor from A H^½: the square would lose the digits of rows of nearly opposite directions."""
        system = cls.__new__(cls)
        bottom = np.eye(ratio.shape[-1]) * np.sqrt(ratio + 1e-28 * np.sum(halves * halves, axis=-1))[:, None, :]
        stacked = np.concatenate([halves.mT, bottom], axis=1)
        system.failed = ~np.isfinite(stacked).all(axis=(1, 2))
        stacked[system.failed] = 0.0
        system.factors, system.lower = list(np.linalg.qr(stacked, mode="r")), False
        return system

    def solve(self, right: RowVector) -> RowVector:
        """Return M⁻¹ times the right sides."""
        found = np.zeros_like(right)
        for k in np.flatnonzero(~self.failed):
            found[k] = dpotrs(self.factors[k], right[k], lower=self.lower)[0]
        return found
