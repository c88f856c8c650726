"""The largest ordered weighted margin of sequences: cutting planes, each round of which is an Att-SVM.

With m_(1) ≤ m_(2) ≤ … the sorted margins of the sequences and weights w_1 ≥ w_2 ≥ … ≥ 0, maximise Σ_k w_k m_(k) over
N(W) ≤ 1. The sum is the least of Σ λ_it A(W)_it over the polytope Λ of all λ ≥ 0 whose sums over the sequences lie in
the permutahedron of w, so the dual is to minimise N*(A*(λ)) over Λ. A vertex of Λ gives the weights, in some order, to
one row of each sequence; each vertex is a linear bound on the sum.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.shapes import Float
from attsvm._utils.threads import threads_for
from attsvm.norms import Lp, Norm
from attsvm.svm.certificate import (
    FARKAS_BOUND,
    farkas,
    is_frobenius,
    over_frobenius,
    rounding_of_margins,
    rounding_of_sums,
)
from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights
from attsvm.svm.loop import Iterates, Iteration, Point, Stop, iterate
from attsvm.svm.methods.registry import SolverSettings, find_candidate

STOP = Stop(target=0.0, max_steps=10_000, patience=300)

MASTER_GAP = 1e-2
"""The gap of the Att-SVM of a round, relative to that which is required."""

SATISFIED = 1e-13
"""A new bound that the weights violate by less than this part does not change them any more."""


class Ordered(NamedTuple):
    """Weights with N(W) = 1, multipliers in Λ, and what they prove."""

    weights: Weights
    multipliers: TokenValues
    value: float  # lower bound: the ordered margin of the weights, less its rounding error
    bound: float  # upper bound: N*(A*(λ)), with its rounding error
    steps: int
    infeasible: bool  # whether the multipliers prove that no weights have a positive ordered margin


def solve_ordered(
    constraints: Constraints,
    order_weights: Float[np.ndarray, " n"],
    norm: Norm,
    start: Weights,
    multipliers: TokenValues | None,
    tol: float,
    max_steps: int | None = None,
) -> Ordered:
    """Maximise the ordered weighted margin of one problem, without batch axes.

    ``order_weights``: w, as many as there are sequences, descending. ``start``: weights to begin with, not zero.
    ``multipliers``: some of Λ, or None.
    """
    method = _CuttingPlanes(constraints, order_weights, norm, start, tol)
    if multipliers is not None:
        method.see_multipliers(multipliers)
    stop = STOP._replace(target=tol, max_steps=max_steps or STOP.max_steps)
    with threads_for(0):
        found = iterate(method, Point.unsolved(method.best[None], method.multipliers[None]), stop)
    infeasible = method.lower <= 0 and farkas(constraints, norm, method.multipliers)[1] > FARKAS_BOUND
    return Ordered(method.best, method.multipliers, method.lower, method.upper, int(found.steps[0]), bool(infeasible))


def ordered_margin(
    constraints: Constraints, order_weights: Float[np.ndarray, " n"], weights: Weights
) -> tuple[float, TokenValues]:
    """Compute Σ_k w_k m_(k), and a vertex λ of Λ that attains it: w_k at the least row of the k-th sequence.

    Sequences without rows have no margin and come last, with multipliers of zero.
    """
    n = len(order_weights)
    rows: TokenMask = constraints.inequality.reshape(n, -1)
    images = np.where(rows, constraints.apply(weights).reshape(n, -1), np.inf)
    least, token = images.min(axis=1), images.argmin(axis=1)
    order = np.argsort(least, kind="stable")[: np.count_nonzero(rows.any(axis=1))]
    vertex = np.zeros(images.shape)
    vertex[order, token[order]] = order_weights[: len(order)]
    return float(least[order] @ order_weights[: len(order)]), vertex.reshape(constraints.inequality.shape)


def rounding_of_bound(constraints: Constraints, norm: Norm, multipliers: TokenValues) -> tuple[float, float]:
    """Bound the rounding errors of Σ λ_it A(W)_it, relative to ‖W‖_F, and of N*(A*(λ))."""
    total = float(np.vdot(multipliers, constraints.sizes))
    of_pull = rounding_of_sums(constraints) * over_frobenius(norm, constraints.weights_shape)
    return total * rounding_of_margins(constraints), total * of_pull


class _CuttingPlanes(Iteration):
    """Bounds ⟨V_j, W⟩ on the ordered margin, with V_j = A*(λ_j) of vertices λ_j, and the W that maximises the least.

    That W is the solution of an Att-SVM, min N(W) subject to ⟨V_j, W⟩ ≥ 1, and its multipliers mix the vertices.

    References: Kelley (1960), *The cutting-plane method for solving convex programs*; von Hohenbalken (1977),
    *Simplicial decomposition in nonlinear programming algorithms*, which is the same on the dual side.
    """

    def __init__(self, constraints: Constraints, order_weights: np.ndarray, norm: Norm, start: Weights, tol: float):
        self.constraints, self.order_weights, self.norm = constraints, order_weights, norm
        self.settings = SolverSettings(tol=max(MASTER_GAP * tol, SATISFIED))
        self.vertices: list[TokenValues] = []
        self.rows: list[Weights] = []
        self.weights = self.best = start / norm.values(start)
        self.multipliers = np.zeros(constraints.inequality.shape)
        self.lower, self.upper, self.finished = -np.inf, np.inf, False

    def evaluate(self) -> Iterates:
        value, self.vertex = ordered_margin(self.constraints, self.order_weights, self.weights)
        # the error of every margin, weighted by λ
        value -= rounding_of_bound(self.constraints, self.norm, self.vertex)[0] * float(np.linalg.norm(self.weights))
        value /= float(self.norm.values(self.weights))
        if value > self.lower:
            self.lower, self.best = value, self.weights / self.norm.values(self.weights)
        gap = 1 - self.lower / self.upper if self.lower > 0 and self.upper < np.inf else np.inf
        return Iterates(self.best[None], self.multipliers[None], np.array([gap]), np.array([not self.finished]))

    def advance(self) -> None:
        """Add the bound of the vertex, and solve the Att-SVM of all bounds."""
        self.vertices.append(self.vertex)
        self.rows.append(self.constraints.adjoint(self.vertex))
        found = self.solved(np.array(self.rows))
        if found.any():
            self.see_multipliers(np.tensordot(found / found.sum(), np.array(self.vertices), 1))

    def see_multipliers(self, multipliers: TokenValues) -> None:
        """Keep them if they prove a lower bound than those before."""
        bound = float(self.norm.dual.values(self.constraints.adjoint(multipliers)))
        bound += rounding_of_bound(self.constraints, self.norm, multipliers)[1]
        if bound < self.upper:
            self.upper, self.multipliers = bound, multipliers

    def solved(self, rows: Float[np.ndarray, "m d_k d_q"]) -> Float[np.ndarray, " m"]:
        """Set the weights that maximise the least bound, and return the multipliers of the bounds.

        Where the multipliers are Farkas multipliers, no weights have a positive margin, and the iteration ends.
        """
        m, shape = len(rows), rows.shape[1:]
        # the rows of a prompt whose tokens are matrices, written as vectors
        one = np.ones((1, 1, 1))
        master = Constraints(-rows.reshape(1, m, -1), one, None, np.ones((1, 1, m), bool), None, np.ones((1, 1, m)))
        norm = self.norm if isinstance(self.norm, Lp) or shape[1] == 1 else OfFlattened(self.norm, shape)
        method = "least-distance" if is_frobenius(norm) else None
        found = find_candidate(master, norm, self.settings, method)
        weights = found.weights.reshape(shape)
        self.finished = bool(found.ray) or not weights.any()
        if not self.finished:
            self.weights = weights
            value, _ = ordered_margin(self.constraints, self.order_weights, weights)
            self.finished = bool(value >= np.tensordot(rows, weights, 2).min() * (1 - SATISFIED))
        return np.asarray(found.multipliers).reshape(-1)


@dataclass(frozen=True)
class OfFlattened(Norm):
    """A norm of matrices, of their entries written as one column."""

    of: Norm
    shape: tuple[int, int]

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return (self.shape[0] * self.shape[1], 1)

    @cached_property
    def dual(self) -> "OfFlattened":
        return OfFlattened(self.of.dual, self.shape)

    def _matrices(self, x: Any, axes: int) -> Any:
        return x.reshape(*x.shape[: x.ndim - axes], *self.shape)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        return self.of.values(self._matrices(np.asarray(x), axes))

    def value(self, x: Any, axes: int = 2) -> float:
        return float(self.values(x, np.ndim(x)))

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        return self.of.prox(self._matrices(x, x.ndim), step).reshape(x.shape)

    def proxes(self, x: np.ndarray, step: float, axes: int = 2) -> np.ndarray:
        return self.of.proxes(self._matrices(x, axes), step).reshape(x.shape)

    def steepest(self, g: Any) -> Any:
        return self.of.steepest(self._matrices(g, g.ndim)).reshape(g.shape)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return self.of.frobenius_factor(self.shape)
