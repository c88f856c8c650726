"""Least Frobenius norm of many small problems together: every step is one call of batched linear algebra for all.

The Gram matrices of the unit rows follow from those of their factors. Block pivoting starts from the rows whose
multipliers are positive after some gradient steps. A result is kept only if the optimality conditions hold up to
rounding. All other problems (infeasible, ill conditioned, not converged) are solved one by one.
"""

import math
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.methods.frobenius.least_distance import ROUNDING
from attsvm.svm.methods.frobenius.pivoting import exchange
from attsvm.svm.methods.registry import CACHED
from attsvm.svm.tolerances import FINEST

POWER_STEPS, GUESSING_STEPS = 2, 16
"""Products for the largest eigenvalue and for the guess: a third of the exchanges from a solution with a ridge."""

MOST_ROWS = 2.0
"""With more rows per unknown than this, the guess is rarely right and is not tried."""


class FrobeniusAnswers(NamedTuple):
    """Answers to N problems; only those that are ``done`` are valid."""

    weights: Weights
    multipliers: TokenValues
    done: Bool[np.ndarray, " N"]
    steps: Int[np.ndarray, " N"]


def solve_batch(constraints: Constraints) -> FrobeniusAnswers:
    """Solve N problems for the weights of least Frobenius norm. ``constraints``: with one leading axis."""
    (N,) = constraints.batch_shape
    most = int(np.count_nonzero(constraints.flat(constraints.norms), axis=-1).max(initial=0))
    if most > MOST_ROWS * math.prod(constraints.weights_shape) or constraints.blocks is not None:
        return unsolved(constraints)
    length = max(1, CACHED // (most + 1) ** 2)  # the Gram matrices of one chunk
    parts = [_solve_chunk(constraints[first : first + length]) for first in range(0, N, length)]
    return (
        parts[0] if len(parts) == 1 else FrobeniusAnswers(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    )


def unsolved(constraints: Constraints) -> FrobeniusAnswers:
    """Return N answers of zeros, none of them done."""
    (N,) = constraints.batch_shape
    weights = np.zeros((N, *constraints.weights_shape))
    return FrobeniusAnswers(weights, np.zeros(constraints.right.shape), np.zeros(N, bool), np.zeros(N, int))


def _solve_chunk(constraints: Constraints) -> FrobeniusAnswers:
    norms = constraints.flat(constraints.norms)
    position, there = _places(norms > 0)
    own = np.where(there, np.take_along_axis(norms, position, axis=-1), 1.0)
    right = np.take_along_axis(constraints.flat(constraints.right), position, axis=-1) / own
    # the tolerances of pivoting are for a largest right side of 1
    scale = right.max(axis=-1, initial=0.0)
    scale = np.where(scale > 0, scale, 1.0)
    right = np.where(there, right / scale[:, None], -1.0)  # missing rows: 0'μ ≥ −1 always holds
    free = None
    if constraints.equality is not None:
        free = np.take_along_axis(constraints.flat(constraints.equality), position, axis=-1) & there
    grams = _grams(constraints, position, there)
    unit, _, exchanges = exchange(grams, right, _guess(grams, right, free), free)
    done = np.isfinite(unit).all(axis=-1)
    # from unit rows to the original ones: λ = μ/‖row‖
    multipliers = np.zeros(norms.shape)
    np.put_along_axis(multipliers, position, np.where(done[:, None] & there, unit / own, 0.0), axis=-1)
    spread = multipliers.reshape(constraints.right.shape)
    weights = constraints.adjoint(spread)
    done &= _solved(constraints, weights, multipliers != 0, scale)
    return FrobeniusAnswers(weights, spread, done, exchanges)


def _places(there: Bool[np.ndarray, "N R"]) -> tuple[Int[np.ndarray, "N m"], Bool[np.ndarray, "N m"]]:
    """Return the positions of the rows of each problem, padded to the largest number, and which entries are rows."""
    count = np.count_nonzero(there, axis=-1)
    most = int(count.max(initial=0))
    if (count == most).all():
        return np.nonzero(there)[1].reshape(len(there), most), np.ones((len(there), most), bool)
    position = np.argsort(~there, axis=-1, kind="stable")[:, :most]
    return position, np.take_along_axis(there, position, axis=-1)


def _grams(
    constraints: Constraints, position: Int[np.ndarray, "N m"], there: Bool[np.ndarray, "N m"]
) -> Float[np.ndarray, "N m m"]:
    """Compute the inner products (l_a'l_b)(z_a'z_b) of the unit rows l z'. Missing rows are rows of zeros."""
    (N,), (n, Q, T) = constraints.batch_shape, constraints.inequality.shape[1:]
    d_k, d_q = constraints.weights_shape
    query, token = constraints.counted(position)
    keys = np.broadcast_to(constraints.keys, (N, n, T, d_k)).reshape(N * n * T, d_k)
    queries = np.broadcast_to(constraints.queries, (N, n, Q, d_q)).reshape(N * n * Q, d_q)
    problem = np.arange(N)[:, None]
    left = keys[problem * (n * T) + token]
    if constraints.references is not None:
        left -= constraints.references.reshape(N * n * Q, d_k)[problem * (n * Q) + query]
    # ⟨l_a z_a', l_b z_b'⟩ = (l_a'l_b)(z_a'z_b)
    gram = _unit_gram(left, there)
    if d_q > 1:
        gram *= _unit_gram(queries[problem * (n * Q) + query], there)
    else:
        # a query of one number has the unit length ±1
        sign = np.sign(queries[problem * (n * Q) + query, 0])
        gram *= sign[:, :, None] * sign[:, None, :]
    return gram


def _unit_gram(vectors: Float[np.ndarray, "N m d"], there: Bool[np.ndarray, "N m"]) -> Float[np.ndarray, "N m m"]:
    """Compute the inner products of the vectors scaled to unit length."""
    size = np.sqrt(np.vecdot(vectors, vectors))
    unit = vectors * (there / np.where(there, size, 1.0))[..., None]
    return np.asarray(unit @ unit.mT)


def _guess(
    grams: Float[np.ndarray, "N m m"], right: Float[np.ndarray, "N m"], free: Bool[np.ndarray, "N m"] | None
) -> Bool[np.ndarray, "N m"]:
    """Guess the positive multipliers: those after some accelerated projected gradient steps on the dual from 0."""

    def times(vectors: Float[np.ndarray, "N m"]) -> Float[np.ndarray, "N m"]:
        return np.asarray(np.matmul(grams, vectors[..., None])[..., 0])

    ahead, step = (right >= 0).astype(np.float64), np.ones((len(right), 1))
    for _ in range(POWER_STEPS):  # 1/step is the largest eigenvalue
        ahead = times(ahead * step)
        length = np.sqrt(np.vecdot(ahead, ahead))[:, None]
        step = 1 / np.where(length > 0, length, 1.0)
    ahead = multipliers = np.zeros(right.shape)
    momentum, bounded = 1.0, True if free is None else ~free
    for _ in range(GUESSING_STEPS):
        previous, multipliers = multipliers, ahead - step * (times(ahead) - right)
        np.maximum(multipliers, 0.0, out=multipliers, where=bounded)
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = multipliers + (momentum - 1) / following * (multipliers - previous)
        momentum = following
    return np.asarray(multipliers > 0 if free is None else (multipliers > 0) | free)


def _solved(
    constraints: Constraints, weights: Weights, active: Bool[np.ndarray, "N R"], scale: Float[np.ndarray, " N"]
) -> Bool[np.ndarray, " N"]:
    """Tell whether active rows hold with equality and the others with or without slack, to the last digits."""
    norms = constraints.flat(constraints.norms)
    there = norms > 0
    norms = np.where(there, norms, 1.0)
    right = constraints.flat(constraints.right) / (norms * scale[:, None])
    slack = constraints.flat(constraints.apply(weights)) / norms - right
    flat = weights.reshape(len(weights), -1)
    allowed = ROUNDING * np.maximum(1.0, np.sqrt(np.vecdot(flat, flat)))[:, None]
    lowest = -np.where(right > 0, np.minimum(allowed, FINEST * right), allowed)
    # μ's = 0: rows with a multiplier have no slack, the others are not violated
    kept = (slack >= lowest) & ((np.abs(slack) <= allowed) | ~active)
    return np.asarray((kept | ~there).all(axis=-1))
