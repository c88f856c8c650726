"""The interface of the nuclear and the spectral norm to the interior point, and the code that they share."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg.lapack import dpotrf, dpotrs

from attsvm._utils.linear_algebra import diagonal_of
from attsvm.svm.constraints.pair_rows import Block, PairRows
from attsvm.svm.constraints.unit_rows import RowVector
from attsvm.svm.loop import Point
from attsvm.svm.methods.growing import RIGID
from attsvm.svm.methods.semidefinite.face import Face

Matrix = Float[np.ndarray, "N K K"]
Values = Float[np.ndarray, " N"]
Lengths = tuple[Values, Values]


@dataclass(frozen=True, eq=False)
class Problems:
    """N problems: rows of unit norm and their right sides. A missing row is a row of zeros with right side −1."""

    rows: PairRows
    right: RowVector
    equality: Bool[np.ndarray, "N m"]

    def keep(self, some: Bool[np.ndarray, " N"]) -> "Problems":
        return Problems(self.rows.keep(some), self.right[some], self.equality[some])

    @cached_property
    def asked(self) -> Bool[np.ndarray, "N m"]:
        """Where a margin is required."""
        return self.right > 0

    @cached_property
    def asked_right(self) -> RowVector:
        """The right side where a margin is required, and 0 elsewhere."""
        return np.where(self.asked, self.right, 0.0)

    @cached_property
    def divisor(self) -> RowVector:
        """The right side where a margin is required, and 1 elsewhere."""
        return np.where(self.asked, self.right, 1.0)

    @cached_property
    def smallest(self) -> Values:
        """The smallest positive right side."""
        return np.asarray(np.where(self.asked, self.right, np.inf).min(axis=-1))

    @cached_property
    def has_rigid(self) -> bool:
        """Whether there are equalities or rows with right side 0."""
        return bool(np.count_nonzero((self.right == 0) | self.equality))

    @cached_property
    def unequal(self) -> RowVector:
        """1 for inequalities and 0 for equalities."""
        return (~self.equality).astype(np.float64)

    @cached_property
    def num_unequal(self) -> Values:
        """How many inequalities there are."""
        return np.asarray(self.unequal.sum(axis=-1))


class State(NamedTuple):
    """An iterate with positive definite matrices; or a change of one, without the parts that the tie determines."""

    free: Matrix
    tied: Matrix
    multipliers: RowVector
    slack: RowVector


class Scaling(NamedTuple):
    """R with R⁻¹ (free) R⁻' = R' (tied) R = diag(d)."""

    R: Matrix
    d: Float[np.ndarray, "N K"]


class Step(NamedTuple):
    """A change of the iterate, and the change of its matrices in the scaled coordinates."""

    change: State
    scaled_free: Matrix
    scaled_tied: Matrix


class Newton(Protocol):
    """The equations of one iterate, eliminated."""

    failed: Bool[np.ndarray, " N"]

    def solve(self, target: Matrix, row_target: RowVector, primal: RowVector) -> Step:
        """The step for T = ``target``, sΔλ + λΔs = ``row_target`` and A(ΔW) − Δs = ``primal``."""


class Cone(Protocol):
    """The parts of the iteration that depend on the norm."""

    primal_is_free: ClassVar[bool]
    face: ClassVar[Face]

    def start(self, problems: Problems, multipliers: RowVector) -> State:
        """A point well inside the cones, with W and λ of size 1; multipliers of inequalities are positive."""

    def weights(self, state: State) -> Block:
        """Return W of a state."""

    def value(self, state: State) -> Values:
        """An upper bound on N(W)."""

    def move(self, problems: Problems, state: State, change: State, lengths: Lengths) -> State:
        """The state after a step of these primal and dual lengths, its matrices consistent with λ to the last digit."""

    def newton(self, problems: Problems, state: State, scaling: Scaling) -> Newton:
        """The equations of a step."""

    def cleaned(self, problems: Problems, found: Point, target: float) -> Point:
        """The result without the small parts that an interior point has and the optimum has not, if the gap allows."""


def measure(
    problems: Problems, weights: Block, image: RowVector, value: Values, multipliers: RowVector, target: float
) -> Lengths:
    """The distance of W and λ from a solution, and the lower bound.

    The distance is the relative gap after scaling, which is ∞ while a margin is not positive, plus the violation of
    equalities and rows with right side 0, which scaling cannot repair, in units in which RIGID ‖W‖ is ``target``.
    """
    margin = np.minimum.reduce(image / problems.divisor, axis=-1, where=problems.asked, initial=np.inf)
    bound = np.vecdot(problems.asked_right, multipliers)
    error = np.abs(1 - bound * margin / value)
    if problems.has_rigid:
        rigid = np.where(problems.equality, np.abs(image), np.where(problems.right == 0, -image, 0.0)).max(axis=-1)
        flat = weights.reshape(len(weights), -1)
        error += target / RIGID * np.maximum(rigid, 0.0) / np.sqrt(np.vecdot(flat, flat))
    return np.where((margin > 0) & np.isfinite(error), error, np.inf), bound


def lift(block: Block) -> Matrix:
    """[[0, B], [B', 0]] / 2, so that ⟨lift(B), X⟩ is ⟨B, X₁₂⟩."""
    size, rows, columns = block.shape
    both = np.zeros((size, rows + columns, rows + columns))
    both[:, :rows, rows:] = 0.5 * block
    both[:, rows:, :rows] = both[:, :rows, rows:].mT
    return both


def start_slack(problems: Problems, weights: Block, multipliers: RowVector, mu: Values) -> RowVector:
    """Slack near the central path, sλ = μ; none of equalities."""
    central = 0.1 * mu[:, None] / np.where(problems.equality, 1.0, multipliers)
    slack = np.maximum(problems.rows.apply(weights) - problems.right, central)
    return np.where(problems.equality, 0.0, slack)


class RowEquations:
    """The factored system M Δλ = r − …, M = A(·)A* + diag(s/λ), that remains after the elimination in every norm.

    ``matrix``: the first part of M, overwritten.

    ``failed``: shape (N,), where M was not numerically positive definite; the solution is 0 there.
    """

    def __init__(self, matrix: Float[np.ndarray, "N m m"], state: State, equality: Bool[np.ndarray, "N m"]) -> None:
        self.multipliers = np.where(equality, 1.0, state.multipliers)
        self.slack = state.slack  # 0 on equalities, like the target, so it stays 0
        diagonal = diagonal_of(matrix)
        # dependent equalities (two sets that share tokens) make the matrix singular: a ridge is added that is smaller
        # than the rounding errors of the other rows, and the residual of the next step corrects its effect
        diagonal *= 1 + 1e-15
        diagonal += self.slack / self.multipliers
        factors = [dpotrf(one.T, lower=True, overwrite_a=True, clean=False) for one in matrix]
        self.failed = np.array([failed != 0 for _, failed in factors])
        self.factors = [factor for factor, _ in factors]

    def solve(self, right: RowVector, row_target: RowVector) -> tuple[RowVector, RowVector]:
        """Solve for Δλ and Δs."""
        right = right + row_target / self.multipliers
        change = np.zeros_like(right)
        for k, (factor, failed) in enumerate(zip(self.factors, self.failed, strict=True)):
            if not failed:
                change[k] = dpotrs(factor, right[k], lower=True)[0]
        return change, (row_target - self.slack * change) / self.multipliers
