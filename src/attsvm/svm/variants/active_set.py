"""The active set of a solution, through which the solution depends smoothly on keys and queries."""

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.linalg

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.norms import Norm
from attsvm.problem import Canonical
from attsvm.svm.certificate import FROBENIUS, SUPPORT_SLACK
from attsvm.svm.methods.generic.problems import DIFFERENCE, slope_of_prox
from attsvm.svm.tolerances import EPS

SMALLEST_PIVOT = 1e-11
"""Gram matrices of unit rows with a smaller reciprocal condition number count as singular."""

LARGEST_ERROR = 1e-6
"""Derivatives with differences of one step and of twice the step agree to this, relative to them."""

LARGEST_KINK = 1e-3
"""Forward and backward differences of prox that differ by more are not those of a differentiable function."""

NEWTON_STEPS = 8
"""Newton's method converges quadratically, or not at all."""


class FactorRows(NamedTuple):
    """Rows l z' of the constraints of one problem."""

    left: Float[np.ndarray, "m d_k"]  # left, right: k_r − k_t, and z
    right: Float[np.ndarray, "m d_q"]
    required: Float[np.ndarray, " m"]  # the right side, 1 or 0
    free: Bool[np.ndarray, " m"]  # rows of a set's other tokens, whose multipliers have no sign
    place: Int[np.ndarray, "4 m"]  # sequence, query, token t and reference token r

    @classmethod
    def of(cls, canonical: Canonical, sets: np.ndarray, relaxed: np.ndarray | None) -> "FactorRows":
        """The rows that keep the sets, (n, Q, T), of a problem without batch axes."""
        keys, queries, allowed, _ = canonical
        reference = np.argmax(sets, axis=-1)
        first = np.arange(sets.shape[-1]) == reference[..., None]
        sequence, query, token = np.nonzero((allowed | sets) & ~(first & sets) & sets.any(axis=-1, keepdims=True))
        of_reference = reference[sequence, query]
        free = sets[sequence, query, token]
        required = np.where(free, 0.0, 1.0)
        if relaxed is not None:
            required *= ~relaxed[sequence, query]
        return cls(
            keys[sequence, of_reference] - keys[sequence, token],
            queries[sequence, query],
            required,
            free,
            np.stack([sequence, query, token, of_reference]),
        )

    def take(self, chosen: Bool[np.ndarray, " m"]) -> "FactorRows":
        return FactorRows(*(x[..., chosen] if x is self.place else x[chosen] for x in self))

    @property
    def lengths(self) -> Float[np.ndarray, " m"]:
        """Frobenius norms of the rows."""
        return np.asarray(np.linalg.norm(self.left, axis=1) * np.linalg.norm(self.right, axis=1))

    def apply(self, weights: Float[np.ndarray, "d_k d_q"]) -> Float[np.ndarray, " m"]:
        return np.asarray(np.vecdot(self.left @ weights, self.right))

    def adjoint(self, multipliers: Float[np.ndarray, " m"]) -> Float[np.ndarray, "d_k d_q"]:
        return np.asarray((self.left * multipliers[:, None]).T @ self.right)


class Sensitivity(NamedTuple):
    """A solution on its active set, and how it changes with the rows."""

    active: FactorRows  # the rows that hold with equality
    weights: np.ndarray  # shape (d_k, d_q)
    multipliers: np.ndarray  # shape (m,), of the active rows, with N*(A*(λ)) = 1
    adjoint: "Adjoint | None"  # None where the active set is degenerate, so that there is no derivative

    def pull(self, gradient: np.ndarray, of_value: float) -> tuple[np.ndarray, np.ndarray]:
        """From the gradient of a function of (W, N(W)) to those with respect to ``active.left`` and ``active.right``.

        The function changes by Σ_j λ_j δA_j(U) − μ_j δA_j(W), where U and μ solve the transposed system.
        """
        rows, W, lam = self.active, self.weights, self.multipliers
        assert self.adjoint is not None
        U, mu = self.adjoint(gradient + of_value * rows.adjoint(lam))
        lam, mu = lam[:, None], mu[:, None]
        return lam * (rows.right @ U.T) - mu * (rows.right @ W.T), lam * (rows.left @ U) - mu * (rows.left @ W)


class Adjoint(NamedTuple):
    """The transposed system, factorised; of the Frobenius norm its Schur complement."""

    rows: FactorRows
    factors: tuple[np.ndarray, np.ndarray]
    lengths: Float[np.ndarray, " m"]
    jacobian: np.ndarray | None  # of prox at step; None for the Frobenius norm
    step: float

    def __call__(self, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(U, μ) of a gradient with respect to W."""
        rows, lengths = self.rows, self.lengths
        if self.jacobian is None:  # U = step (G − A*(μ)) with A(U) = 0
            mu = scipy.linalg.lu_solve(self.factors, rows.apply(gradient) / lengths) / lengths
            return self.step * (gradient - rows.adjoint(mu)), mu
        right = np.concatenate([gradient.ravel(), np.zeros(len(lengths))])
        solved = scipy.linalg.lu_solve(self.factors, right, trans=1)
        U = self.step * (self.jacobian @ solved[: gradient.size])
        return U.reshape(gradient.shape), solved[gradient.size :] / lengths


def sensitivity(rows: FactorRows, norm: Norm, weights: np.ndarray, multipliers: np.ndarray) -> Sensitivity:
    """Finish a solution on its active set, and prepare its derivative.

    The optimality conditions W = prox(W + A*(λ)) and A(W) = b of the active rows are solved by Newton's method from
    the given point. By the implicit function theorem W is differentiable if these equations are, if their Jacobian is
    regular, and if each inequality has either a positive multiplier or a positive slack. Otherwise the active set is
    degenerate.

    ``norm``: with ``prox`` or ``project_dual_ball``. ``weights``: shape (d_k, d_q), not zero. ``multipliers``: shape
    (m,), with N*(A*(λ)) = 1.
    """
    lengths = rows.lengths
    pull = multipliers * lengths / np.linalg.norm(rows.adjoint(multipliers))
    slack = (rows.apply(weights) - rows.required) / (np.where(lengths > 0, lengths, 1.0) * np.linalg.norm(weights))
    is_active = rows.free | (pull > slack)
    active = rows.take(is_active)
    if not (lengths[is_active] > 0).all():
        return Sensitivity(active, weights, multipliers[is_active], None)
    solve = _euclidean if norm == FROBENIUS else partial(_general, norm)
    found = solve(active, weights, multipliers[is_active])
    weights, lam = found.weights, found.multipliers
    idle = rows.take(~is_active)
    size = np.linalg.norm(weights)
    slack_left = idle.apply(weights) - idle.required > SUPPORT_SLACK * idle.lengths * size
    size = np.linalg.norm(active.adjoint(lam))
    pulls = active.free | (lam * active.lengths > SUPPORT_SLACK * size)
    return found if slack_left.all() and pulls.all() else found._replace(adjoint=None)


def _euclidean(rows: FactorRows, weights: np.ndarray, multipliers: np.ndarray) -> Sensitivity:
    lengths = rows.lengths
    gram = (rows.left @ rows.left.T) * (rows.right @ rows.right.T) / np.outer(lengths, lengths)
    factors = scipy.linalg.lu_factor(gram)
    reciprocal, _ = scipy.linalg.lapack.dgecon(factors[0], np.linalg.norm(gram, 1))
    if not reciprocal > SMALLEST_PIVOT:
        return Sensitivity(rows, weights, multipliers, None)
    solved = scipy.linalg.lu_solve(factors, rows.required / lengths) / lengths
    weights = rows.adjoint(solved)
    value = float(np.linalg.norm(weights))
    return Sensitivity(rows, weights, solved / value, Adjoint(rows, factors, lengths, None, value))


def _general(norm: Norm, rows: FactorRows, weights: np.ndarray, multipliers: np.ndarray) -> Sensitivity:
    lengths, size = rows.lengths, weights.size
    matrix = (rows.left[:, :, None] * rows.right[:, None, :]).reshape(len(lengths), size) / lengths[:, None]
    scale = float(np.linalg.norm(weights))
    step = scale / float(np.linalg.norm(rows.adjoint(multipliers)))
    given = Sensitivity(rows, weights, multipliers, None)

    def system(jacobian: np.ndarray) -> Adjoint:
        none = np.zeros((len(lengths), len(lengths)))
        blocks = np.block([[np.eye(size) - jacobian, -jacobian @ matrix.T], [matrix, none]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)  # a singular system has no derivative
            return Adjoint(rows, scipy.linalg.lu_factor(blocks), lengths, jacobian, step)

    for _ in range(NEWTON_STEPS):
        at = weights + step * rows.adjoint(multipliers)
        jacobian, kink = slope_of_prox(norm, at, step)
        adjoint = system(jacobian)
        residual = np.concatenate(
            [(weights - norm.prox(at, step)).ravel(), (rows.apply(weights) - rows.required) / lengths]
        )
        change = scipy.linalg.lu_solve(adjoint.factors, residual)
        if kink > LARGEST_KINK or not np.isfinite(change).all():
            return given
        weights = weights - change[:size].reshape(weights.shape)
        multipliers = multipliers - change[size:] / (lengths * step)
        if np.linalg.norm(change[:size]) <= np.sqrt(EPS) * scale:  # the next change is a rounding error
            break
    else:
        return given
    found = Sensitivity(rows, weights, multipliers, adjoint)
    coarser, _ = slope_of_prox(norm, at, step, 2 * DIFFERENCE)
    return found if _agree(found, found._replace(adjoint=system(coarser))) else found._replace(adjoint=None)


def _agree(first: Sensitivity, second: Sensitivity) -> bool:
    """Whether the derivatives of a random function of W agree. Differences that a singular system magnifies do not."""
    gradient = np.random.default_rng(0).standard_normal(first.weights.shape)
    pairs = zip(first.pull(gradient, 0.0), second.pull(gradient, 0.0), strict=True)
    return all(np.linalg.norm(x - y) <= LARGEST_ERROR * np.linalg.norm(x) for x, y in pairs)
