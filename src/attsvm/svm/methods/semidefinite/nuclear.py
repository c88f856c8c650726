"""The least nuclear norm, to which training the factors of W = K Q' converges."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from attsvm._utils.linear_algebra import diagonal_of
from attsvm.norms import Norm, Nuclear
from attsvm.svm.constraints.constraints import Constraints
from attsvm.svm.constraints.pair_rows import Block
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.loop import Point
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.generic.solve_generic import SPLITTING, solve_generic
from attsvm.svm.methods.registry import solver
from attsvm.svm.methods.semidefinite.cone import (
    Lengths,
    Matrix,
    Problems,
    RowEquations,
    Scaling,
    State,
    Step,
    Values,
    lift,
    measure,
    start_slack,
)
from attsvm.svm.methods.semidefinite.face import Face, Singular
from attsvm.svm.methods.semidefinite.solve_semidefinite import METHODS, solve_semidefinite

BLOCKED_ROWS = 128
"""Rows up to which the equations are formed in one piece."""

NEGLIGIBLE = 1e-6
"""Singular values below this, relative to the first, are removed if the gap does not grow."""

LEFT_OUT = np.zeros((1, 1, 1))
"""Placeholder for the change of D, which follows from that of λ."""


class NuclearFace:
    """The face on which A*(λ) has r singular values 1 and W has rank r.

    U₁'A*(λ)V₁ = I up to a rotation, and S is unknown.
    """

    mix: ClassVar[float] = 4.5
    ridge: ClassVar[float] = 0.1

    def mixed(self, weights: Block, pull: Block) -> Block:
        """Return A*(λ), which is X."""
        return np.asarray(self.mix * weights + pull)

    def first_size(self, value: Values) -> Values:
        return np.ones(len(value))

    def sizes(self, core: Singular, rest: Singular) -> tuple[Singular, Singular]:
        """W is U₁SV₁' on a face of the nuclear norm."""
        return core, rest

    def free(self, inside: Bool[np.ndarray, " d"], sums: Bool[np.ndarray, "d c"]) -> Bool[np.ndarray, "d c"]:
        """The symmetric part of U₁'WV₁."""
        return np.asarray(sums & inside[:, None] & inside[: sums.shape[1]])

    def gather(self, diagonal: np.ndarray, inside: np.ndarray, pull: Singular | None = None) -> None:
        """The singular values of W are independent."""

    def spread(self, diagonal: np.ndarray, inside: np.ndarray) -> None:
        """Do nothing, as in ``gather``."""

    def size(self, before: Values, weights: Block) -> Values:
        return before

    def values(self, weights: Singular, pull: Singular) -> tuple[Values, Values]:
        """Their sum and the largest."""
        return weights.sum(axis=-1), pull[:, 0]


@dataclass(frozen=True)
class NuclearCone:
    """P is free, with W in its corner; D = ½I − lift(A*(λ)) is tied to λ."""

    split: int  # d_k
    primal_is_free: ClassVar[bool] = True
    face: ClassVar[Face] = NuclearFace()

    def start(self, problems: Problems, multipliers: RowVector) -> State:
        """A point on the central path, except that A(W) − s = b may not hold: P = μ D⁻¹."""
        image = problems.rows.adjoint(multipliers)
        shrink = 0.9 / np.linalg.svd(image, compute_uv=False)[:, :1]
        multipliers = multipliers * shrink
        tied = _tied(image * shrink[:, :, None])
        inverse = np.linalg.inv(tied)
        mu = 0.4 / np.linalg.svd(inverse[:, : self.split, self.split :], compute_uv=False).sum(axis=-1)
        free = inverse * mu[:, None, None]
        slack = start_slack(problems, free[:, : self.split, self.split :], multipliers, mu)
        return State(free, tied, multipliers, slack)

    def weights(self, state: State) -> Block:
        return state.free[:, : self.split, self.split :]

    def value(self, state: State) -> Values:
        """Return ½ tr P."""
        return np.asarray(0.5 * np.trace(state.free, axis1=-2, axis2=-1))

    def move(self, problems: Problems, state: State, change: State, lengths: Lengths) -> State:
        """Compute D from λ."""
        primal_length, dual_length = lengths
        multipliers = state.multipliers + dual_length[:, None] * change.multipliers
        return State(
            state.free + primal_length[:, None, None] * change.free,
            _tied(problems.rows.adjoint(multipliers)),
            multipliers,
            state.slack + primal_length[:, None] * change.slack,
        )

    def newton(self, problems: Problems, state: State, scaling: Scaling) -> "_Equations":
        return _Equations(problems, state, scaling, self.split)

    def cleaned(self, problems: Problems, found: Point, target: float) -> Point:
        """Remove the small singular values that an interior point keeps above 0, as long as the gap does not grow."""
        U, sigma, Vt = np.linalg.svd(found.weights, full_matrices=False)
        sigma = np.where(sigma > NEGLIGIBLE * sigma[:, :1], sigma, 0.0)
        weights = (U * sigma[:, None, :]) @ Vt
        gap, _ = measure(problems, weights, problems.rows.apply(weights), sigma.sum(axis=-1), found.multipliers, target)
        fine = gap <= np.maximum(found.gap, target)
        return found._replace(
            weights=np.where(fine[:, None, None], weights, found.weights), gap=np.where(fine, gap, found.gap)
        )


class _Equations:
    """ΔD = −lift(A*(Δλ)) and ΔP = R T R' − G ΔD G, G = RR', in A(ΔW) − Δs = primal.

    The matrix A [G lift(A*(·)) G]₁₂ has the entries ½ (l_a'G₁₁l_b · z_a'G₂₂z_b + l_a'G₁₂z_b · l_b'G₁₂z_a).
    """

    def __init__(self, problems: Problems, state: State, scaling: Scaling, split: int) -> None:
        self.rows, self.R = problems.rows, scaling.R
        self.upper, self.lower = self.R[:, :split], self.R[:, split:]
        self.equations = RowEquations(self._matrix(), state, problems.equality)
        self.failed = self.equations.failed

    def _matrix(self) -> Float[np.ndarray, "N m m"]:
        """Its upper triangle, a query's rows at a time: what a block needs stays in the cache."""
        rows = self.rows
        left, queries = rows.left @ self.upper, rows.queries @ (0.5**0.5 * self.lower)
        count = left.shape[1]
        if count <= BLOCKED_ROWS:
            matrix = left @ left.mT
            matrix *= (queries @ queries.mT)[:, rows.query_of[:, None], rows.query_of]
            crossed = (left @ queries.mT)[:, :, rows.query_of]
            matrix += crossed * crossed.mT
            return np.asarray(matrix)
        matrix = np.empty((len(left), count, count))
        met, crossed = queries @ queries.mT, left @ queries.mT
        for query, (first, end) in enumerate(zip(rows.first, [*rows.first[1:], count], strict=True)):
            later = rows.query_of[first:]
            block = left[:, first:end] @ left[:, first:].mT
            block *= met[:, query, later][:, None, :]
            block += crossed[:, first:end, later] * crossed[:, first:, query][:, None, :]
            matrix[:, first:end, first:] = block
        return matrix

    def solve(self, target: Matrix, row_target: RowVector, primal: RowVector) -> Step:
        pushed = self.rows.apply(self.upper @ target @ self.lower.mT)
        multipliers, slack = self.equations.solve(primal - pushed, row_target)
        image = self.rows.adjoint(multipliers)
        half = -0.5 * (self.upper.mT @ image @ self.lower)
        scaled_tied = half + half.mT
        scaled_free = target - scaled_tied
        change = State(self.R @ scaled_free @ self.R.mT, LEFT_OUT, multipliers, slack)
        return Step(change, scaled_free, scaled_tied)


def _tied(image: Block) -> Matrix:
    tied = lift(-image)
    diagonal_of(tied)[:] = 0.5
    return tied


@solver(Nuclear, methods=METHODS)
def solve_nuclear(constraints: Constraints, norm: Norm, settings: Settings, method: str | None = None) -> Candidate:
    """Least nuclear norm; see :func:`solve_semidefinite`."""
    if method == SPLITTING:
        return solve_generic(constraints, norm, settings, method)
    return solve_semidefinite(constraints, norm, NuclearCone, settings, method)
