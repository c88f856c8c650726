"""Least Frobenius norm of many small problems together: every step is one call of batched linear algebra for all.

A few steps of accelerated projected gradient on the duals guess which rows are active. Block principal pivoting on the
Gram matrices (``block_pivoting`` for a single problem) corrects the guess, usually in two exchanges. A result is kept
only if the optimality conditions hold up to rounding. All other problems (infeasible, ill conditioned, not converged)
are solved one by one.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.frobenius.least_distance import ROUNDING, SHORTFALL

GUESSING_STEPS = 16
"""Number of gradient steps before the first exchange. A step costs a fiftieth of an exchange."""

POWER_STEPS = 2
"""Power iterations for the largest eigenvalue of a Gram matrix, which sets the step. A rough estimate is sufficient."""

MAX_EXCHANGES = 8
"""Largest number of exchanges. Nine problems in ten need at most three."""

TOLERANCE = 1e-12
"""Violations below this, relative to the largest right side, are ignored."""

RIDGE = 4 * float(np.finfo(float).eps)
"""Added to the diagonal of the Gram matrix of unit rows, so that equal rows give large multipliers and no error."""

MOST_ROWS = 2.0
"""With more rows per unknown than this, the guess is rarely right and is not tried."""

CHUNK_NUMBERS = 120_000
"""Numbers in the Gram matrices of problems taken together: more would not fit into the processor's cache."""


class Together(NamedTuple):
    """Answers to N problems; only those that are ``done`` are valid."""

    weights: Weights
    multipliers: TokenValues
    done: Bool[np.ndarray, " N"]
    steps: Int[np.ndarray, " N"]


class _Grams(NamedTuple):
    """Unit rows of N problems by their Gram matrices. Missing rows, and always the last, are rows of zeros."""

    matrix: Float[np.ndarray, "N m m"]
    right: Float[np.ndarray, "N m"]  # over the largest of each problem; −1 for missing rows, always true
    free: Bool[np.ndarray, "N m"] | None  # equalities; None if there is none

    def keep(self, some: Bool[np.ndarray, " N"]) -> "_Grams":
        return _Grams(self.matrix[some], self.right[some], None if self.free is None else self.free[some])


def solve_together(constraints: Constraints) -> Together:
    """The weights of least Frobenius norm of N problems.

    ``constraints``: with one leading axis.

    References: Beck and Teboulle (2009), *A fast iterative shrinkage-thresholding algorithm*; Júdice and Pires (1994),
    *A block principal pivoting algorithm for large-scale strictly monotone linear complementarity problems*.
    """
    (N,) = constraints.batch_shape
    most = int(np.count_nonzero(constraints.flat(constraints.norms), axis=-1).max(initial=0))
    if most > MOST_ROWS * math.prod(constraints.weights_shape):
        return unsolved(constraints)
    length = max(1, CHUNK_NUMBERS // (most + 1) ** 2)
    parts = [_solve_chunk(constraints[first : first + length]) for first in range(0, N, length)]
    return parts[0] if len(parts) == 1 else Together(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def unsolved(constraints: Constraints) -> Together:
    """N answers of zeros, none of them done."""
    (N,) = constraints.batch_shape
    weights = np.zeros((N, *constraints.weights_shape))
    return Together(weights, np.zeros(constraints.right.shape), np.zeros(N, bool), np.zeros(N, int))


def _solve_chunk(constraints: Constraints) -> Together:
    norms = constraints.flat(constraints.norms)
    position, there = _places(norms > 0)
    grams, scale = _grams(constraints, position, there)
    try:
        unit, done, exchanges = _exchange(grams, _guess(grams))
    except np.linalg.LinAlgError:  # one of the systems is singular in spite of the ridge
        unit, done, exchanges = np.zeros(grams.right.shape), np.zeros(len(norms), bool), np.ones(len(norms), int)
    multipliers = np.zeros(norms.shape)
    np.put_along_axis(multipliers, position, unit[:, :-1], axis=-1)
    multipliers /= np.where(norms > 0, norms, 1.0)
    spread = multipliers.reshape(constraints.right.shape)
    weights = constraints.adjoint(spread)
    done &= _solved(constraints, weights, multipliers != 0, scale)
    return Together(weights, spread, done, exchanges)


def _places(there: Bool[np.ndarray, "N R"]) -> tuple[Int[np.ndarray, "N m"], Bool[np.ndarray, "N m"]]:
    """Positions of the rows of each problem, padded to the largest number of rows, and which entries are rows."""
    count = np.count_nonzero(there, axis=-1)
    most = int(count.max(initial=0))
    if (count == most).all():
        return np.nonzero(there)[1].reshape(len(there), most), np.ones((len(there), most), bool)
    position = np.argsort(~there, axis=-1, kind="stable")[:, :most]
    return position, np.take_along_axis(there, position, axis=-1)


def _grams(
    constraints: Constraints, position: Int[np.ndarray, "N m"], there: Bool[np.ndarray, "N m"]
) -> tuple[_Grams, Float[np.ndarray, " N"]]:
    """Gram matrices of the unit rows, from those of their factors, and the largest right side of each problem."""
    (N,), (n, Q, T) = constraints.batch_shape, constraints.inequality.shape[1:]
    d_k, d_q = constraints.weights_shape
    query, token = constraints.counted(position)
    keys = np.broadcast_to(constraints.keys, (N, n, T, d_k)).reshape(N * n * T, d_k)
    queries = np.broadcast_to(constraints.queries, (N, n, Q, d_q)).reshape(N * n * Q, d_q)
    problem = np.arange(N)[:, None]
    left = keys[problem * (n * T) + token]
    if constraints.references is not None:
        left -= constraints.references.reshape(N * n * Q, d_k)[problem * (n * Q) + query]
    gram = _unit_gram(left, there)
    if d_q > 1:
        gram *= _unit_gram(queries[problem * (n * Q) + query], there)
    else:
        sign = np.sign(queries[problem * (n * Q) + query, 0])
        gram[:, :-1, :-1] *= sign[:, :, None] * sign[:, None, :]

    norms = np.take_along_axis(constraints.flat(constraints.norms), position, axis=-1)
    right = np.take_along_axis(constraints.flat(constraints.right), position, axis=-1) / np.where(there, norms, 1.0)
    largest = right.max(axis=-1, initial=0.0)
    largest = np.where(largest > 0, largest, 1.0)
    padded = np.full((N, position.shape[1] + 1), -1.0)
    padded[:, :-1] = np.where(there, right / largest[:, None], -1.0)
    free = None
    if constraints.equality is not None:
        free = np.zeros(padded.shape, bool)
        free[:, :-1] = np.take_along_axis(constraints.flat(constraints.equality), position, axis=-1) & there
    return _Grams(gram, padded, free), largest


def _unit_gram(vectors: Float[np.ndarray, "N m d"], there: Bool[np.ndarray, "N m"]) -> Float[np.ndarray, "N m+1 m+1"]:
    """Inner products of the vectors scaled to unit length, with a row and a column of zeros at the end."""
    size = np.sqrt(np.vecdot(vectors, vectors))
    unit = np.zeros((len(vectors), vectors.shape[1] + 1, vectors.shape[2]))
    np.multiply(vectors, (there / np.where(there, size, 1.0))[..., None], out=unit[:, :-1])
    return unit @ unit.mT


def _guess(grams: _Grams) -> Bool[np.ndarray, "N m"]:
    """Rows with a positive multiplier after a few steps of accelerated projected gradient on the dual."""
    ahead = (grams.right >= 0).astype(np.float64)
    for _ in range(POWER_STEPS):
        size = _lengths(ahead)
        ahead = _times(grams.matrix, ahead / size)
    step = 1 / _lengths(ahead)
    ahead = multipliers = np.zeros(grams.right.shape)
    momentum = 1.0
    for _ in range(GUESSING_STEPS):
        previous, multipliers = multipliers, ahead - step * (_times(grams.matrix, ahead) - grams.right)
        np.maximum(multipliers, 0.0, out=multipliers, where=_clipped(grams))
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = multipliers + (momentum - 1) / following * (multipliers - previous)
        momentum = following
    return multipliers > 0 if grams.free is None else (multipliers > 0) | grams.free


def _exchange(
    grams: _Grams, inside: Bool[np.ndarray, "N m"]
) -> tuple[Float[np.ndarray, "N m"], Bool[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Exchange all rows that violate a condition until there is none; solved problems are set aside."""
    multipliers, done = np.zeros(grams.right.shape), np.zeros(len(inside), bool)
    exchanges = np.zeros(len(inside), int)
    alive = np.arange(len(inside))
    for _ in range(MAX_EXCHANGES):
        exchanges[alive] += 1
        solved = _on_face(grams, inside)
        condition = np.where(inside, solved, _times(grams.matrix, solved) - grams.right)
        broken = condition < -TOLERANCE
        if grams.free is not None:
            broken &= ~grams.free
        going = np.asarray(broken.any(axis=-1))
        ended = alive[~going]
        done[ended] = True
        multipliers[ended] = np.maximum(solved, 0.0, out=solved, where=_clipped(grams))[~going]
        if not going.any():
            break
        inside = (inside ^ broken)[going]
        grams, alive = grams.keep(going), alive[going]
    return multipliers, done, exchanges


def _on_face(grams: _Grams, inside: Bool[np.ndarray, "N m"]) -> Float[np.ndarray, "N m"]:
    """Multipliers with slack 0 on the rows inside, 0 elsewhere: linear systems padded to the largest of them."""
    N, m = inside.shape
    last = m - 1  # a row of zeros, which pads problems with fewer rows inside
    width = max(1, int(np.count_nonzero(inside, axis=-1).max()))
    problem, row = np.nonzero(inside)
    index = np.full((N, width), last)
    index[problem, (np.cumsum(inside, axis=-1) - 1)[problem, row]] = row
    start = np.arange(N)[:, None] * (m * m) + index * m
    system = grams.matrix.reshape(-1)[start[:, :, None] + index[:, None, :]]
    system.reshape(N, -1)[:, :: width + 1] += RIDGE + (index == last)
    right = np.take_along_axis(grams.right, index, axis=-1)
    solved = np.zeros((N, m))
    np.put_along_axis(solved, index, np.linalg.solve(system, right[..., None])[..., 0], axis=-1)
    solved[:, last] = 0.0
    return solved


def _solved(
    constraints: Constraints, weights: Weights, active: Bool[np.ndarray, "N R"], scale: Float[np.ndarray, " N"]
) -> Bool[np.ndarray, " N"]:
    """Whether active rows hold with equality and the others with or without slack, to the last digits."""
    norms = constraints.flat(constraints.norms)
    there = norms > 0
    norms = np.where(there, norms, 1.0)
    right = constraints.flat(constraints.right) / (norms * scale[:, None])
    slack = constraints.flat(constraints.apply(weights)) / norms - right
    flat = weights.reshape(len(weights), -1)
    allowed = ROUNDING * np.maximum(1.0, np.sqrt(np.vecdot(flat, flat)))[:, None]
    lowest = -np.where(right > 0, np.minimum(allowed, SHORTFALL * right), allowed)
    kept = (slack >= lowest) & ((np.abs(slack) <= allowed) | ~active)
    return np.asarray((kept | ~there).all(axis=-1))


def _clipped(grams: _Grams) -> Bool[np.ndarray, "N m"] | bool:
    """Where multipliers must not be negative."""
    return True if grams.free is None else ~grams.free


def _lengths(vectors: Float[np.ndarray, "N m"]) -> Float[np.ndarray, "N 1"]:
    """Euclidean lengths, 1 instead of 0."""
    size = np.sqrt(np.vecdot(vectors, vectors))
    return np.where(size > 0, size, 1.0)[:, None]


def _times(matrix: Float[np.ndarray, "N m m"], vector: Float[np.ndarray, "N m"]) -> Float[np.ndarray, "N m"]:
    return np.asarray(np.matmul(matrix, vector[..., None])[..., 0])
