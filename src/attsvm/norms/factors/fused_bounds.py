"""Bounds on the norms of fused keys and queries, and on their dual norms, from explicit factors and densities.

``tied`` says whether keys and queries are columns of one matrix, [K, Q]; otherwise those of the heads are fused.
"""

from dataclasses import dataclass

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.norms.attention_heads import Heads
from attsvm.norms.factors.blocks import SymmetricBlocks
from attsvm.norms.factors.elliptope import (
    EPS,
    Balance,
    MarginPair,
    OneRow,
    Square,
    Squares,
    Vector,
    largest_margin,
    nearest_multiple,
)

FLOORS = 1e-8, 1e-10, 1e-12
"""Eigenvalues of a density are raised to these, relative to the largest, before they divide; the best bound counts."""

MOST_ENTRIES = 3000
"""With more entries, factors of given weights are found by mirror ascent: the equations have an unknown for each."""

BALANCING_STEPS = 1000
BALANCED = 1e-7
"""Relative distance of the bounds at which mirror ascent ends."""

STEP = 2.0
"""Of mirror ascent, relative to the gradient; it diverges from 4 on."""


@dataclass(frozen=True)
class KeyQueryFactors:
    """Factors K_h and Q_h, which bound the norm of their products."""

    left: Float[np.ndarray, "H d_k r"]
    right: Float[np.ndarray, "H d_q r"]
    tied: bool

    @classmethod
    def of(cls, found: MarginPair, bases: "tuple[np.ndarray, np.ndarray]", tied: bool) -> "KeyQueryFactors":
        """Return those of X at the end of the interior-point method, in coordinates of the bases."""
        factors = np.linalg.cholesky(found.matrices)
        split = bases[0].shape[1]
        return cls(bases[0] @ factors[:, :split], bases[1] @ factors[:, split:], tied)

    @property
    def size(self) -> float:
        """Return ‖[K, Q]‖², or ‖[K_1 … K_H]‖ ‖[Q_1 … Q_H]‖."""
        grams = [(part @ part.mT).sum(axis=0) for part in (self.left, self.right)]
        if self.tied:
            return float(np.linalg.norm(grams[0] + grams[1], 2))
        return float(np.sqrt(np.linalg.norm(grams[0], 2) * np.linalg.norm(grams[1], 2)))

    def __call__(self, x: np.ndarray) -> float | None:
        """Return the bound for weights (H, d_k, d_q), or (H d_k, d_q), that are nearly a multiple of the products."""
        whole = self.left @ self.right.mT
        nearest = nearest_multiple(whole, x.reshape(whole.shape))
        if nearest is None:
            return None
        factor, rest = nearest
        lacking = (2 if self.tied else 1) * float(np.linalg.norm(rest, 2, axis=(-2, -1)).sum())
        return float(abs(factor) * self.size * (1 + EPS * (4 + whole.shape[-1]))) + lacking


@dataclass(frozen=True)
class Densities:
    """Positive definite P and R (or P for both), which bound the dual norm."""

    left: Square  # left, right: shapes (d_k, d_k), (d_q, d_q), in coordinates of the bases
    right: Square
    bases: tuple[np.ndarray, np.ndarray]
    tied: bool

    @classmethod
    def of(
        cls, found: MarginPair, balance: SymmetricBlocks, bases: tuple[np.ndarray, np.ndarray], tied: bool
    ) -> "Densities":
        """Return those of the multipliers at the end of the interior-point method."""
        each = balance.densities(found.free)
        return cls(each[0], each[-1], bases, tied)

    def __call__(self, x: np.ndarray) -> float:
        """Return σ √(tr P tr R), σ the largest singular value of all P^(−½) G_h R^(−½); half of it if tied."""
        left, right = self.bases
        x = x.reshape(-1, left.shape[0], right.shape[0])
        inner = left.T @ x @ right
        rest = np.linalg.norm(x - left @ inner @ right.T, 2, axis=(-2, -1)).max() * np.sqrt(
            left.shape[0] * right.shape[0]
        )
        return min(self._bound(inner, floor) for floor in FLOORS) + float(rest)

    def _bound(self, x: Heads, floor: float) -> float:
        roots, traces = [], []
        for density in (self.left, self.right):
            values, vectors = np.linalg.eigh(density)
            values = np.maximum(values, floor * values[-1])
            roots.append(vectors / np.sqrt(values))
            traces.append(values.sum())
        sigma = np.linalg.norm(roots[0].T @ x @ roots[1], 2, axis=(-2, -1)).max()
        return float(
            (0.5 if self.tied else 1.0) * (1 + 4 * EPS * sum(x.shape)) * sigma * np.sqrt(traces[0] * traces[1])
        )


class _Entries:
    """All entries of the corners: C = θ W."""

    def __init__(self, weights: Heads) -> None:
        self._shape = weights.shape
        self.right = weights.ravel()
        self.equality: Bool[np.ndarray, " m"] = np.ones(weights.size, bool)

    def apply(self, corners: Heads) -> Vector:
        return corners.ravel()

    def adjoint(self, multipliers: Vector) -> Heads:
        return multipliers.reshape(self._shape)

    def equations(self, matrices: Squares, inverses: Squares, balance: Balance) -> tuple[np.ndarray, np.ndarray]:
        """Compute them from the columns of X and Z⁻¹."""
        number, rows, columns = self._shape
        own = rows * columns
        i, j = np.repeat(np.arange(rows), columns), rows + np.tile(np.arange(columns), rows)
        crossed, products = [], np.zeros((number * own, number * own))
        for h, (X, Z) in enumerate(zip(matrices, inverses, strict=True)):
            crossed.append(0.5 * (balance.of_products(X[:, i], Z[:, j]) + balance.of_products(X[:, j], Z[:, i])))
            block = X[np.ix_(i, i)] * Z[np.ix_(j, j)] + Z[np.ix_(i, i)] * X[np.ix_(j, j)]
            mixed = X[np.ix_(i, j)] * Z[np.ix_(j, i)]
            part = slice(h * own, (h + 1) * own)
            products[part, part] = 0.25 * (block + mixed + mixed.T)
        return np.concatenate(crossed, axis=1), products


def least_factors(weights: Heads, tied: bool) -> float:
    """Return the bound on the norm of given weights that the best factors prove."""
    scale = float(np.abs(weights).max(initial=0.0))
    if scale == 0 or not np.isfinite(scale):
        return scale
    weights = weights / scale
    bases = spans(weights.swapaxes(0, 1).reshape(weights.shape[1], -1), weights.reshape(-1, weights.shape[2]).T, tied)
    inner = bases[0].T @ weights @ bases[1]
    if inner.size > MOST_ENTRIES:
        factors = balanced(inner, tied)
        factors = KeyQueryFactors(bases[0] @ factors.left, bases[1] @ factors.right, tied)
    else:
        balance = SymmetricBlocks(inner.shape[1:], tied)
        found = largest_margin(_Entries(inner), balance, inner.ravel(), inner.shape[1])
        factors = KeyQueryFactors.of(found, bases, tied)
    without = (2 if tied else 1) * float(np.linalg.norm(weights, 2, axis=(-2, -1)).sum())
    return scale * min(without, factors(weights) or without)


def least_dual_bound(gradients: Heads, tied: bool) -> float:
    """Return the bound on the dual norm that the best densities prove."""
    scale = float(np.abs(gradients).max(initial=0.0))
    if scale == 0 or not np.isfinite(scale):
        return scale
    G = gradients / scale
    bases = spans(G.swapaxes(0, 1).reshape(G.shape[1], -1), G.reshape(-1, G.shape[2]).T, tied)
    inner = bases[0].T @ G @ bases[1]
    balance = SymmetricBlocks(inner.shape[1:], tied)
    found = largest_margin(OneRow(inner), balance, np.ones(1), inner.shape[1])
    return scale * Densities.of(found, balance, bases, tied)(G)


def spans(
    left: Float[np.ndarray, "d_k k"], right: Float[np.ndarray, "d_q l"], tied: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return orthonormal bases of the spans of columns, which contain the optimum; one for both if they are tied."""
    if tied:
        basis = _span(np.concatenate([left, right], axis=1))
        return basis, basis
    return _span(left), _span(right)


def _span(vectors: Float[np.ndarray, "d k"]) -> Float[np.ndarray, "d r"]:
    U, sigma, _ = np.linalg.svd(vectors, full_matrices=False)
    rank = int((sigma > sum(vectors.shape) * EPS * sigma[0]).sum())
    return np.eye(len(U)) if rank == len(U) else np.asarray(U[:, :rank])


def balanced(weights: Heads, tied: bool) -> KeyQueryFactors:
    """Return factors whose bound is near the least, by mirror ascent over densities of trace 1.

    With P^½ W_h R^½ = U_h S_h V_h' the factors K_h = P^(−½) U_h S_h^½ and Q_h = R^(−½) V_h S_h^½ bound the norm from
    above, and Σ tr S_h bounds it from below. The sum is concave in P and R, with gradients ½ Σ K_h K_h' and
    ½ Σ Q_h Q_h'.
    """
    logs = [np.zeros((size, size)) for size in weights.shape[1:]]
    best, lower = (
        KeyQueryFactors(weights, np.broadcast_to(np.eye(weights.shape[2]), (len(weights), *logs[1].shape)), tied),
        0.0,
    )
    for _ in range(BALANCING_STEPS):
        roots = [_root(log) for log in logs]
        U, sigma, Vt = np.linalg.svd(roots[0][0] @ weights @ roots[1][0], full_matrices=False)
        half = np.sqrt(sigma)[:, None, :]
        found = KeyQueryFactors(roots[0][1] @ (U * half), roots[1][1] @ (Vt.mT * half), tied)
        best = min(best, found, key=lambda factors: factors.size)
        lower = max(lower, (2 if tied else 1) * float(sigma.sum()))
        if best.size - lower <= BALANCED * best.size:
            break
        slopes = [STEP / sigma.sum() * (part @ part.mT).sum(axis=0) for part in (found.left, found.right)]
        if tied:
            slopes = [0.5 * (slopes[0] + slopes[1])] * 2
        logs = [log + slope for log, slope in zip(logs, slopes, strict=True)]
    return best


def _root(log: Square) -> tuple[Square, Square]:
    """Return the square root of the density with this logarithm, up to its trace, and the inverse of the root."""
    values, vectors = np.linalg.eigh(log)
    # the factors divide by the roots of the eigenvalues, and multiply to the weights up to about ε over the smallest
    values = np.maximum(np.exp(values - values[-1]), FLOORS[0])
    values /= values.sum()
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
