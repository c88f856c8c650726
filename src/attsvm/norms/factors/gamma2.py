"""The γ2 norm (max-norm) and its dual: bounds from above that differ from the norms by rounding errors."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from attsvm.norms.base import Norm
from attsvm.norms.factors.elliptope import (
    EPS,
    GOOD_GAP,
    Diagonal,
    OneRow,
    Square,
    Vector,
    at_unit_scale,
    largest_margin,
)
from attsvm.norms.lp import Lp

CAREFUL_FROM = 1e-11
"""With a larger gap, a second search takes shorter steps."""

SMALLEST = 1e-13
"""Entries of a diagonal are raised to this, relative to the largest, before they divide."""


@dataclass(frozen=True)
class Gamma2(Norm):
    """γ2(W), the least max_i ‖x_i‖ max_j ‖y_j‖ over W = X Y', where x_i and y_j are the rows of X and Y.

    :ref:`Provisional <provisional>`: it may change in any minor version.

    It is the smallest t for which some matrix with W in its corner, [[A, W], [W', B]], is positive semidefinite and has
    a diagonal of at most t. The value is that of explicit factors, so it is a bound from above. Its relative error is
    usually about 1e-12, and up to 1e-5 where a few entries of a badly scaled matrix determine the norm.

    See Also
    --------
    attsvm.norms.factors.Nu
    attsvm.optimizers.row_descent : Its limit on keys and queries.

    References
    ----------
    Srebro and Shraibman (2005), *Rank, Trace-Norm and Max-Norm*; Linial, Mendelson, Schechtman and Shraibman (2007),
    *Complexity measures of sign matrices*.

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import Gamma2
    >>> round(Gamma2().value(np.array([[1.0, 1.0], [1.0, -1.0]])), 6)
    1.414214
    """

    name = "gamma2"

    @property
    def dual(self) -> Norm:
        """Return half the least Σ u + Σ v over the diagonals with [[D(u), G], [G', D(v)]] positive semidefinite."""
        return DualGamma2()

    @property
    def of_vectors(self) -> Norm:
        return Lp(np.inf)

    def value(self, x: Any, axes: int = 2) -> float:
        """Return a bound from above: the sizes of the rows of two factors."""
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 1:
            return float(self.of_vectors.value(x, 1))
        return at_unit_scale(x, _least_rows)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        """Return 1: γ2 is at most the spectral norm."""
        return 1.0


@dataclass(frozen=True)
class DualGamma2(Norm):
    """The dual of γ2: the largest Σ g_ij ⟨x_i, y_j⟩ over unit vectors x_i and y_j.

    See Also
    --------
    attsvm.norms.factors.Gamma2

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.norms.factors import Gamma2
    >>> round(Gamma2().dual.value(np.eye(3)), 6)
    3.0
    """

    name = "dual of gamma2"

    @property
    def dual(self) -> Gamma2:
        return Gamma2()

    @property
    def of_vectors(self) -> Norm:
        return Lp(1.0)

    def value(self, x: Any, axes: int = 2) -> float:
        """Return a bound from above, from a diagonal that is repaired.

        It is σ √(Σ u Σ v) for the largest singular value σ of D(u)^(−1/2) G D(v)^(−1/2).
        """
        x = np.asarray(x, dtype=np.float64)
        if x.ndim == 1:
            return float(self.of_vectors.value(x, 1))
        return at_unit_scale(x, _least_diagonal)

    def frobenius_factor(self, shape: tuple[int, int]) -> float:
        return float(np.sqrt(shape[0] * shape[1]))


def occupied(x: np.ndarray) -> np.ndarray:
    """Leave out the rows and columns of zeros, which change none of these norms."""
    return np.asarray(x[np.abs(x).max(axis=1) > 0][:, np.abs(x).max(axis=0) > 0])


class _BalancedFactors:
    """The factors A C' = W that the weights p of the rows and q of the columns balance.

    Without smoothing A'D(p)A = C'D(q)C = D(σ), where σ are the singular values of D(√p) W D(√q). Their sum f(p, q) is
    at most γ2(W) if p and q sum to 1, and concave; its derivatives are half the squared rows of A and C.

    ``left``, ``right``: shapes (rows, r), (columns, r), any factors of W of full rank. ``weights``: shape (rows +
    columns,), p and q, positive. ``smoothing``: added to A'D(p)A and C'D(q)C.
    """

    def __init__(self, left: np.ndarray, right: np.ndarray, weights: Vector, smoothing: float) -> None:
        count, rank = left.shape
        roots = np.sqrt(weights)[:, None]
        scaled = roots[:count] * left, roots[count:] * right
        singular = np.linalg.svd(_triangle(scaled[0]) @ _triangle(scaled[1]).T, compute_uv=False)
        self.lower = float(singular.sum() / np.sqrt(weights[:count].sum() * weights[count:].sum()))
        more = np.sqrt(smoothing) * np.eye(rank)
        triangles = [_triangle(np.concatenate([part, more])) for part in scaled]
        U, self.sigma, Vt = np.linalg.svd(triangles[0] @ triangles[1].T)
        size = np.sqrt(self.sigma)
        self.left = np.linalg.solve(triangles[0].T, left.T).T @ U * size
        self.right = np.linalg.solve(triangles[1].T, right.T).T @ Vt.T * size
        self.squares = np.concatenate([np.vecdot(self.left, self.left), np.vecdot(self.right, self.right)])
        self.upper = float(np.sqrt(self.squares[:count].max() * self.squares[count:].max()))

    def curvature(self) -> Square:
        """Return minus the second derivative of f."""
        sums = np.sqrt(2 * (self.sigma[:, None] + self.sigma))
        outer = [
            (part[:, :, None] * part[:, None, :] / sums).reshape(len(part), -1) for part in (self.left, self.right)
        ]
        signed = np.concatenate([outer[0], -outer[1]])
        return np.asarray(signed @ signed.T)


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """Return R of the QR decomposition."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


class _SearchPace(NamedTuple):
    """How a search for the best factors goes on."""

    # times μ: what is added to A'D(p)A and C'D(q)C, which are nearly singular where few rows determine the norm
    smoothing: float
    near: float  # share of the way to the boundary that a step goes
    centring: float  # least share of μ that a step keeps
    steps: int


FAST, CAREFUL = _SearchPace(0.0, 0.99, 0.0, 30), _SearchPace(1.0, 0.9, 0.3, 80)


def _least_rows(matrix: np.ndarray) -> float:
    """Return the bound of the best factors of a matrix."""
    matrix = occupied(matrix)
    U, sigma, Vt = np.linalg.svd(matrix, full_matrices=False)
    # what rounding errors leave out of the factors is added to the bound
    rank = int((sigma > sum(matrix.shape) * EPS * sigma[0]).sum())
    left, right = U[:, :rank] * np.sqrt(sigma[:rank]), Vt[:rank].T * np.sqrt(sigma[:rank])
    found, lower = _best_factors(left, right, FAST)
    if found.upper - lower > CAREFUL_FROM * found.upper:
        found = min(found, _best_factors(left, right, CAREFUL)[0], key=lambda factors: factors.upper)
    lacking = float(np.linalg.norm(matrix - found.left @ found.right.T, 2))  # at least its γ2
    return found.upper * (1 + 4 * EPS) + lacking


def _best_factors(left: np.ndarray, right: np.ndarray, pace: _SearchPace) -> tuple[_BalancedFactors, float]:
    """Return the factors with the least upper bound, and the largest lower one.

    Maximises f of :class:`_BalancedFactors` over weights that sum to 2, by an interior-point method of Mehrotra's kind.
    """
    number = len(left) + len(right)
    weights = np.concatenate([np.full(len(part), 1 / len(part)) for part in (left, right)])
    best = _BalancedFactors(left, right, weights, 0.0)
    lower, factors = best.lower, best
    level = 0.6 * float(best.squares.max())
    prices = level - 0.5 * best.squares
    for _ in range(pace.steps):
        mu = float(weights @ prices) / number
        try:
            weights, prices, level = _stepped(factors, weights, prices, level, pace)
            factors = _BalancedFactors(left, right, weights, pace.smoothing * mu)
        except np.linalg.LinAlgError:  # μ is a rounding error, or weights are so small that the factors lose their rank
            break
        lower = max(lower, factors.lower)
        best = min(best, factors, key=lambda factors: factors.upper)
        if not best.upper - lower > GOOD_GAP * best.upper:
            break
    return best, lower


def _stepped(
    factors: _BalancedFactors, weights: Vector, prices: Vector, level: float, pace: _SearchPace
) -> tuple[Vector, Vector, float]:
    """Return weights, prices and level after a predictor and a corrector.

    Raises LinAlgError if the equations are singular in floating point: several weights are optimal.
    """
    number = len(weights)
    mu = float(weights @ prices) / number
    curvature = factors.curvature()
    # in the direction of the weights themselves f is linear; their sum is fixed
    curvature += float(np.trace(curvature)) / number
    curvature[np.diag_indices(number)] += prices / weights
    equations = scipy.linalg.cho_factor(curvature)
    short = 0.5 * factors.squares - level
    border = scipy.linalg.cho_solve(equations, np.ones(number))

    def solved(target: Vector) -> tuple[Vector, Vector, float]:
        """Return the changes for which slopes − level + prices = 0, Σ weights = 2 and weights · prices = target."""
        change = scipy.linalg.cho_solve(equations, short + target / weights)
        rise = float((change.sum() - 2 + weights.sum()) / border.sum())
        change = change - rise * border
        return change, (target - prices * change) / weights - prices, rise

    change, price_change, _ = solved(np.zeros(number))
    length = min(1.0, 1 / _fall(weights, change), 1 / _fall(prices, price_change))
    ahead = float((weights + length * change) @ (prices + length * price_change)) / number
    aim = max(pace.centring, (ahead / mu) ** 3) * mu
    change, price_change, rise = solved(aim - change * price_change)
    length = min(1.0, pace.near / _fall(weights, change), pace.near / _fall(prices, price_change))
    return weights + length * change, prices + length * price_change, level + length * rise


def _fall(point: Vector, change: Vector) -> float:
    """Return the largest relative decrease."""
    return max(float((-change / point).max()), 1e-3)


def _least_diagonal(matrix: np.ndarray) -> float:
    """Return a bound on the dual of γ2 of a matrix."""
    matrix = occupied(matrix)
    rows = len(matrix)
    diagonal = largest_margin(OneRow(matrix[None]), Diagonal(sum(matrix.shape)), np.ones(1), rows).free
    positive = np.maximum(diagonal, SMALLEST * diagonal.max())
    u, v = positive[:rows], positive[rows:]
    sigma = float(np.linalg.norm(matrix / np.sqrt(u)[:, None] / np.sqrt(v), 2))
    return float((1 + 4 * EPS * len(diagonal)) * sigma * np.sqrt(u.sum() * v.sum()))
