"""Barriers of unit balls: smooth convex functions that are infinite on the sphere, for stacks of matrices.

A barrier is a function of the entries of W, or of its singular values, through one of three gauges. Its Hessian has a
closed inverse, which is all that an interior-point method needs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attsvm._utils.linear_algebra import singular_values, svd
from attsvm._utils.shapes import Float
from attsvm.norms import Lp, Norm, Nuclear, Spectral

Matrices = Float[np.ndarray, "N k e"]
Values = Float[np.ndarray, " N"]

VANISHING = 1e-12
"""A singular value below it is zero, where h'(s)/s is h''(0)."""


class GaugeSlopes(NamedTuple):
    """A gauge's barrier at sizes s, shape (N, m): h with gradient h' and Hessian diag(h'') + weight b b'."""

    value: Values
    gradient: Float[np.ndarray, "N m"]
    curvature: Float[np.ndarray, "N m"]
    vector: Float[np.ndarray, "N m"]  # b
    weight: Values


class Gauge(ABC):
    """A barrier h of vectors, even in each entry. Only the gauges of singular values provide :meth:`quotients`."""

    order: float  # of the ℓp norm of the sizes

    @abstractmethod
    def complexity(self, number: int) -> float:
        """Return the number of the self-concordant barrier: on the central path the gap is about μ times this."""

    @abstractmethod
    def slopes(self, s: Float[np.ndarray, "N m"]) -> GaugeSlopes:
        """Return the barrier and its derivatives inside the ball."""

    def quotients(self, s: Float[np.ndarray, "N m"]) -> tuple[np.ndarray, np.ndarray]:
        """Return (h'_i − h'_j)/(s_i − s_j) and (h'_i + h'_j)/(s_i + s_j) of all pairs, without cancellation."""
        raise NotImplementedError


class Largest(Gauge):
    """h(s) = −Σ log(1 − s²), for max |s| < 1."""

    order = np.inf

    def complexity(self, number: int) -> float:
        # −log(1 − s) − log(1 + s) for each s, and each logarithm has the parameter 1
        return 2.0 * number

    def slopes(self, s: np.ndarray) -> GaugeSlopes:
        slack = (1 - s) * (1 + s)
        none = np.zeros(len(s))
        return GaugeSlopes(
            -np.log(slack).sum(axis=-1), 2 * s / slack, 2 * (1 + s * s) / slack**2, np.zeros_like(s), none
        )

    def quotients(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # s_i(1 − s_j²) ∓ s_j(1 − s_i²) = (s_i ∓ s_j)(1 ± s_i s_j)
        slack, product = (1 - s) * (1 + s), s[:, :, None] * s[:, None]
        both = slack[:, :, None] * slack[:, None]
        return 2 * (1 + product) / both, 2 * (1 - product) / both


class Euclidean(Gauge):
    """h(s) = −log(1 − ‖s‖²)."""

    order = 2.0

    def complexity(self, number: int) -> float:
        return 2.0

    def slopes(self, s: np.ndarray) -> GaugeSlopes:
        length = np.sqrt(np.sum(s * s, axis=-1))
        slack = (1 - length) * (1 + length)
        # ∇h = 2s/(1 − ‖s‖²), ∇²h = 2/(1 − ‖s‖²) I + 4/(1 − ‖s‖²)² s s'
        flat = np.broadcast_to((2 / slack)[:, None], s.shape)
        return GaugeSlopes(-np.log(slack), flat * s, flat, s, 4 / slack**2)


class Total(Gauge):
    """The least −Σ log(x² − s²) over x with Σ x = 1, for Σ |s| < 1.

    The minimum has x = (1 + t)/ν, t = √(1 + ν²s²), where ν is the multiplier of Σ x = 1.
    """

    order = 1.0

    def complexity(self, number: int) -> float:
        return 2.0 * number

    def slopes(self, s: np.ndarray) -> GaugeSlopes:
        nu = self._multiplier(s)
        t = np.sqrt(1 + (nu[:, None] * s) ** 2)
        # x² − s² = 2(1 + t)/ν²
        value = -np.log(2 * (1 + t)).sum(axis=-1) + 2 * s.shape[-1] * np.log(nu)
        # h' = 2s/(x² − s²) = ν²s/(1 + t); s also moves ν, by dν/ds = ν³ (s/t)/Σ (1 + t)/t, which adds the part b b'
        square = nu[:, None] ** 2
        weight = nu**4 / ((1 + t) / t).sum(axis=-1)
        return GaugeSlopes(value, square * s / (1 + t), square / (t * (1 + t)), s / t, weight)

    def quotients(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nu = self._multiplier(s)[:, None]
        t = np.sqrt(1 + (nu * s) ** 2)
        # s_i(1 + t_j) ∓ s_j(1 + t_i) over s_i ∓ s_j, by (s_i t_j − s_j t_i)(s_i t_j + s_j t_i) = s_i² − s_j²
        mixed = s[:, :, None] * t[:, None] + s[:, None] * t[:, :, None]
        total = s[:, :, None] + s[:, None]
        ratio = np.divide(mixed, total, out=np.ones_like(mixed), where=total > 0)
        scale = (nu**2 / (1 + t))[:, :, None] / (1 + t)[:, None]
        return scale * (1 + 1 / ratio), scale * (1 + ratio)

    @staticmethod
    def _multiplier(s: np.ndarray) -> Values:
        """Solve Σ (1 + √(1 + ν²s²)) = ν by Newton's method."""
        s = np.abs(s)
        slack = 1 - s.sum(axis=-1)
        # with r = √(1 + ν²s²) − ν|s|, ν(1 − Σ|s|) − Σ r = number, in which nothing cancels beside the sphere. The left
        # side is concave and increases in ν, so that steps from below increase to the root.
        nu = s.shape[-1] / slack
        for _ in range(60):
            scaled = nu[:, None] * s
            t = np.sqrt(1 + scaled**2)
            r = 1 / (t + scaled)
            change = (s.shape[-1] + r.sum(axis=-1) - nu * slack) / (slack + (s * r / t).sum(axis=-1))
            nu = nu + change
            if (change <= 1e-13 * nu).all():
                break
        return np.asarray(nu)


class BarrierMetric(ABC):
    """The barrier at one stack of matrices: value, gradient, and the inverse of its Hessian."""

    value: Values
    gradient: Matrices

    @abstractmethod
    def solve(self, x: Float[np.ndarray, "N *more k e"]) -> np.ndarray:
        """Return the inverse Hessian times each matrix."""

    @abstractmethod
    def gram(self, left: Float[np.ndarray, "N n T k"], right: Float[np.ndarray, "N n e"]) -> np.ndarray:
        """Return A H⁻¹ A* for the rows left_it right_i', shape (N, nT, nT)."""


class EntryMetric(BarrierMetric):
    """For a gauge of the entries."""

    def __init__(self, matrices: Matrices, gauge: Gauge) -> None:
        shape = matrices.shape
        slopes = gauge.slopes(matrices.reshape(len(matrices), -1))
        self.value, self.gradient = slopes.value, slopes.gradient.reshape(shape)
        self.inverse = (1 / slopes.curvature).reshape(shape)
        # Sherman and Morrison: H⁻¹ = D − factor (D b)(D b)'
        vector = slopes.vector.reshape(shape)
        self.along = vector * self.inverse
        self.factor = slopes.weight / (1 + slopes.weight * (vector * self.along).sum(axis=(-2, -1)))

    def solve(self, x: np.ndarray) -> np.ndarray:
        more = (slice(None), *(None,) * (x.ndim - 3))
        along = self.along[more]
        onto = (x * along).sum(axis=(-2, -1), keepdims=True) * self.factor[(*more, None, None)]
        return np.asarray(x * self.inverse[more] - onto * along)

    def gram(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        # between_ija = Σ_b right_ib D_ab right_jb
        pairs = right[:, :, None] * right[:, None]
        between = pairs.reshape(len(right), -1, right.shape[-1]) @ self.inverse.mT
        between = between.reshape(*pairs.shape[:3], -1)
        # Σ_a left_ita between_ija left_jsa
        blocks = (left[:, :, None] * between[:, :, :, None]) @ left.mT[:, None]
        along = (left @ (right @ self.along.mT)[..., None])[..., 0]
        return _subtract_outer(blocks, along, self.factor)


class SingularMetric(BarrierMetric):
    """For a gauge of the singular values, in the coordinates of the singular vectors.

    There the Hessian couples X_ij with X_ji alone: it multiplies their sum by (h'_i − h'_j)/(s_i − s_j) and their
    difference by (h'_i + h'_j)/(s_i + s_j).
    """

    def __init__(self, matrices: Matrices, gauge: Gauge) -> None:
        rows, columns = matrices.shape[1:]
        self.U, s, self.Vt = svd(matrices)
        self.rank = rank = s.shape[-1]
        slopes = gauge.slopes(s)
        of_sum, of_difference = gauge.quotients(s)
        self.value = slopes.value
        self.gradient = (self.U[:, :, :rank] * slopes.gradient[:, None]) @ self.Vt[:, :rank]
        # outside of the square block: h'_i / s_i, which is h''_i where s_i vanishes
        outside = np.divide(slopes.gradient, s, out=slopes.curvature.copy(), where=s > VANISHING)
        own = np.empty(matrices.shape)
        # the inverse of the 2 × 2 block of X_ij and X_ji, whose eigenvalues are of_sum and of_difference
        own[:, :rank, :rank] = 0.5 * (1 / of_sum + 1 / of_difference)
        if columns > rank:
            own[:, :, rank:] = 1 / outside[:, :, None]
        if rows > rank:
            own[:, rank:] = 1 / outside[:, None, :]
        self.own, self.other = own, 0.5 * (1 / of_sum - 1 / of_difference)
        # (h'_i − h'_j)/(s_i − s_j) is h''_i for j = i; the part weight · b b' acts on the diagonal only
        inverse = np.diagonal(1 / of_sum, axis1=1, axis2=2)
        self.along = slopes.vector * inverse
        self.factor = slopes.weight / (1 + slopes.weight * (slopes.vector * self.along).sum(axis=-1))

    def solve(self, x: np.ndarray) -> np.ndarray:
        more = (slice(None), *(None,) * (x.ndim - 3))
        U, Vt, rank = self.U[more], self.Vt[more], self.rank
        turned = U.mT @ x @ Vt.mT
        solved = turned * self.own[more]
        square = turned[..., :rank, :rank]
        solved[..., :rank, :rank] += square.mT * self.other[more]
        diagonal = np.arange(rank)
        along = self.along[more]
        onto = (square[..., diagonal, diagonal] * along).sum(axis=-1, keepdims=True) * self.factor[(*more, None)]
        solved[..., diagonal, diagonal] -= onto * along
        return np.asarray(U @ solved @ Vt)

    def gram(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        rank = self.rank
        left, right = left @ self.U[:, None], right @ self.Vt.mT
        pairs = right[:, :, None] * right[:, None]
        between = (pairs.reshape(len(right), -1, right.shape[-1]) @ self.own.mT).reshape(*pairs.shape[:3], -1)
        mixed = left[:, :, None] * between[:, :, :, None]
        # Σ_ab left_ita right_ja other_ab · right_ib left_jsb
        square, short = left[..., :rank], right[..., :rank]
        first = (square[:, :, None] * short[:, None, :, None]) @ self.other[:, None, None]
        mixed[..., :rank] += first * short[:, :, None, None]
        blocks = mixed @ left.mT[:, None]
        along = (square * (short * self.along[:, None])[:, :, None]).sum(axis=-1)
        return _subtract_outer(blocks, along, self.factor)


def _subtract_outer(
    blocks: Float[np.ndarray, "N n n T T"], along: Float[np.ndarray, "N n T"], factor: Values
) -> np.ndarray:
    """Return the blocks as one matrix, less factor · along along'."""
    flat = along.reshape(len(along), -1)
    matrix = blocks.transpose(0, 1, 3, 2, 4).reshape(*flat.shape, -1)
    if not factor.any():
        return matrix
    return np.asarray(matrix - factor[:, None, None] * flat[:, :, None] * flat[:, None])


@dataclass(frozen=True)
class Barrier:
    """The barrier of the unit ball of a norm."""

    gauge: Gauge
    of_singular_values: bool
    norm: Norm

    def metric(self, matrices: Matrices) -> BarrierMetric:
        """The barrier at matrices inside the ball."""
        return (SingularMetric if self.of_singular_values else EntryMetric)(matrices, self.gauge)

    def value(self, matrices: Matrices) -> Values:
        """The value of the barrier at matrices inside the ball."""
        sizes = singular_values(matrices) if self.of_singular_values else matrices.reshape(len(matrices), -1)
        return self.gauge.slopes(sizes).value

    def complexity(self, shape: tuple[int, int]) -> float:
        """About the gap on the central path over μ."""
        return self.gauge.complexity(min(shape) if self.of_singular_values else shape[0] * shape[1])


def barrier_of(norm: Norm) -> Barrier | None:
    """The barrier of a norm, or None."""
    gauges = {1.0: Total(), 2.0: Euclidean(), np.inf: Largest()}
    if isinstance(norm, Lp) and norm.p in gauges:
        return Barrier(gauges[norm.p], False, norm)
    if isinstance(norm, Spectral):
        return Barrier(Largest(), True, norm)
    return Barrier(Total(), True, norm) if isinstance(norm, Nuclear) else None


def order_of(norm: Norm) -> float:
    """The p for which the norm of a block-diagonal matrix is the ℓp norm of those of its blocks; ∞ if not known."""
    # the entries, or the singular values, of a block-diagonal matrix are those of all its blocks
    barrier = barrier_of(norm)
    return np.inf if barrier is None else barrier.gauge.order
