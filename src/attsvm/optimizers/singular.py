"""Singular values and orthogonal polar factors of many small matrices at once.

One-sided Jacobi rotations give the singular value decompositions. The trailing axis of each array holds the matrices,
so that all of them are computed in vector registers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import contract, over_entries, settle, total
from attsvm._utils.jax_devices import default_device

Array = jax.Array

_MOST_SWEEPS = 30
_SQUARINGS = 12


class Singular(NamedTuple):
    """A = Σ_j σ_j u_j v_j', in no particular order; the trailing axis holds the trials."""

    left: Array  # (r, k, B): u_j, zero where σ_j = 0
    values: Array  # (k, B)
    right: Array  # (c, k, B)


def singular_values_and_vectors(matrix: Array) -> Singular:
    """Decompose matrices (r, c, B) whose largest entry is about 1.

    LAPACK would be called for one trial at a time, and its threads wait for those of other trials: two simultaneous
    calls can deadlock. Rotations of pairs of columns run over all trials in vector registers and are as accurate.

    References: Demmel and Veselić (1992), *Jacobi's method is more accurate than QR*; the order of the pairs is that of
    Brent and Luk (1985).
    """
    if matrix.shape[0] < matrix.shape[1]:
        left, values, right = singular_values_and_vectors(jnp.swapaxes(matrix, 0, 1))
        return Singular(right, values, left)
    rows, columns, _ = matrix.shape
    padded = columns + columns % 2
    matrix = jnp.pad(matrix, ((0, 0), (0, padded - columns), (0, 0)))
    identity = jnp.broadcast_to(jnp.eye(padded, dtype=matrix.dtype)[..., None], (padded, *matrix.shape[1:]))
    # the rows below the matrix hold the product of all rotations
    turned, _, _ = jax.lax.while_loop(
        lambda carry: (carry[2] < _MOST_SWEEPS) & jnp.any(carry[1] > _orthogonal(matrix.dtype)),
        lambda carry: (*_sweep(carry[0], rows), carry[2] + 1),
        (jnp.concatenate([matrix, identity]), jnp.full(matrix.shape[-1:], jnp.inf, matrix.dtype), 0),
    )
    images, right = turned[:rows], turned[rows : rows + columns]
    values = jnp.sqrt(total(images * images, axis=0)[0])
    return Singular(images / jnp.where(values > 0, values, 1.0), values, right)


def _orthogonal(dtype: jnp.dtype) -> float:
    """The cosine below which two columns are orthogonal up to rounding."""
    return 16.0 * float(jnp.finfo(dtype).eps)


def _sweep(columns: Array, rows: int) -> tuple[Array, Array]:
    """Rotate every pair of columns once; returns the largest cosine between two columns before their rotation."""
    number = columns.shape[1]
    floor = _largest_square(columns[:rows]) * float(jnp.finfo(columns.dtype).eps) ** 2

    def one_round(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        columns, worst = carry
        columns, cosine = _rotate(columns, rows, floor)
        # the first column stays, the others move by one place: after number - 1 rounds each pair has been rotated
        half = number // 2
        top, bottom = columns[:, :half], columns[:, half:]
        seats = [top[:, :1], bottom[:, :1], top[:, 1:-1], bottom[:, 1:], top[:, -1:]]
        columns = jnp.concatenate(seats if half > 1 else [top, bottom], axis=1)
        return settle(columns), jnp.maximum(worst, cosine)

    start = columns, jnp.zeros(columns.shape[-1:], columns.dtype)
    turned, worst = jax.lax.fori_loop(0, number - 1, one_round, start)
    return turned, worst


def _rotate(columns: Array, rows: int, floor: Array) -> tuple[Array, Array]:
    """Make column i orthogonal to column i + half, for all i; returns the largest cosine of such a pair."""
    half = columns.shape[1] // 2
    first, second = columns[:, :half], columns[:, half:]
    a, b = first[:rows], second[:rows]
    of_first, of_second, product = (settle(total(x * y, axis=0)[0]) for x, y in ((a, a), (b, b), (a, b)))
    cosine = jnp.abs(product) / jnp.sqrt(jnp.maximum(of_first * of_second, floor * floor))
    # columns that consist of rounding errors need not be orthogonal
    counts = (cosine > 0) & (jnp.minimum(of_first, of_second) > floor)
    ratio = (of_second - of_first) / jnp.where(counts, 2.0 * product, 1.0)
    sign = jnp.where(ratio < 0, -1.0, 1.0)
    tangent = jnp.where(counts, sign / (jnp.abs(ratio) + jnp.sqrt(1.0 + ratio * ratio)), 0.0)
    c = 1.0 / jnp.sqrt(1.0 + tangent * tangent)
    s = settle(c * tangent)
    turned = jnp.concatenate([c * first - s * second, s * first + c * second], axis=1)
    return turned, over_entries(jnp.maximum, jnp.where(counts, cosine, 0.0))


def _largest_square(x: Array) -> Array:
    largest = over_entries(jnp.maximum, jnp.abs(x))
    return settle(largest * largest)


def largest_singular_values(matrices: Array) -> Array:
    """Compute the largest singular value of each matrix (r, c, B), to about 1e-5 of itself, shape (B,)."""
    return map_tall(_largest_singular_values, matrices)[0, 0]


def _largest_singular_values(matrices: Array) -> Array:
    gram = settle(contract("ir,rj->ij", settle(jnp.swapaxes(matrices, 0, 1)), matrices))

    def square(_: Array, x: Array) -> Array:
        x = settle(contract("ij,jk->ik", x, x))
        return divided(x, over_entries(jnp.maximum, jnp.abs(x)))

    # a high power of the Gram matrix has the first singular vector in each column
    power = jax.lax.fori_loop(0, _SQUARINGS, square, divided(gram, over_entries(jnp.maximum, jnp.abs(gram))))
    image = contract("rc,cj->rj", matrices, power)
    ratios = divided(total(image * image, axis=0), total(power * power, axis=0))
    return jnp.sqrt(jnp.max(ratios, axis=1, keepdims=True))


# x(a + bx² + cx⁴): these two map [0.24, 1] into 1 ± 0.003, and are the flattest that do (found by linear programming)
_FLATTENING = ((3.88657151, -7.40626767, 4.6855723), (1.90467096, -1.28258702, 0.37827338))
# 0 and 1 are its fixed points, and it is flat at both: values below √(2/3) tend to 0, those above to 1
_ROUNDING = (0.0, 2.5, -1.5)
_ROUNDINGS = 3
_FEWEST = 8
_MOST = 64


def exact_polar_factor(matrices: Array) -> Array:
    """U V' of the singular value decompositions U Σ V', of the singular values above rounding; 0 of a zero matrix.

    A few rational functions lift all singular values above 4·max(r, c)·eps of the matrix's norm to [0.24, 1], and then
    polynomials round each value to 0 or 1. Smaller ones may be rounding errors of the entries, whose directions differ
    from one order of sums to another.

    ``matrices``: shape (r, c, B), their squares neither overflow nor underflow.

    References: Nakatsukasa, Bai and Gygi (2010), *Optimizing Halley's Iteration for Computing the Matrix Polar
    Decomposition*.
    """
    return map_tall(_exact_polar_factor, matrices)


def _exact_polar_factor(matrices: Array) -> Array:
    rows = len(matrices)
    count, slope = _lifts(rows, matrices.dtype)
    factors = divided(matrices, jnp.sqrt(over_entries(jnp.add, matrices * matrices)))
    factors = jax.lax.fori_loop(0, count, lambda _, x: _lift(x, slope), factors)
    for coefficients in _FLATTENING:
        factors = odd_polynomial(factors, coefficients)
    rounded: Array = jax.lax.fori_loop(0, _ROUNDINGS, lambda _, x: odd_polynomial(x, _ROUNDING), factors)
    return rounded


def map_tall(function: Callable[[Array], Array], matrices: Array) -> Array:
    """Apply a function of tall matrices (r, c, B), r ≥ c, that commutes with transposition.

    Loops over three to seven matrices are not vectorized, so these are computed as eight. On a CPU, more than 64 are
    computed in equal parts, because products of many matrices read most of their operands from a slower cache.
    """
    if matrices.shape[0] < matrices.shape[1]:
        return jnp.swapaxes(map_tall(function, jnp.swapaxes(matrices, 0, 1)), 0, 1)
    number = matrices.shape[-1]
    parts = -(-number // _MOST) if default_device().platform == "cpu" else 1
    length = -(-number // (_FEWEST * parts)) * _FEWEST if number > 2 else number
    padded = jnp.pad(matrices, ((0, 0), (0, 0), (0, parts * length - number)))
    if parts == 1:
        return function(padded)[..., :number]
    split = jnp.moveaxis(padded.reshape(*matrices.shape[:2], parts, length), 2, 0)
    whole = jnp.moveaxis(jax.lax.map(function, settle(split)), 0, 2)
    return whole.reshape(*whole.shape[:2], -1)[..., :number]


def odd_polynomial(matrices: Array, coefficients: tuple[float, float, float]) -> Array:
    """U p(Σ) V' with p(σ) = aσ + bσ³ + cσ⁵, of matrices (r, c, B) with r ≥ c."""
    a, b, c = coefficients
    gram = _gram(matrices)
    of_gram = a * _identity(matrices) + b * gram + c * contract("ij,jk->ik", gram, gram)
    return contract("ri,ij->rj", matrices, settle(of_gram))


def divided(x: Array, size: Array) -> Array:
    """The quotient, and 0 where the size is 0."""
    return settle(x / jnp.where(size > 0, size, 1.0))


def _lifts(rows: int, dtype: Any) -> tuple[int, float]:
    """How often to lift, and the slope at 0 of a lift.

    Singular values above 4·rows·eps, relative to the Frobenius norm, are to end above √(2/3). The slope is limited,
    because a lift perturbs a matrix by about slope²·eps/4 of its size.
    """
    eps = float(jnp.finfo(dtype).eps)
    flattening = math.prod(a for a, _, _ in _FLATTENING)
    whole = math.sqrt(2 / 3) / (4 * rows * eps) / flattening
    most = 256.0 if eps < 1e-10 else 16.0
    count = max(1, math.ceil(math.log(whole) / math.log(most)))
    return count, float(whole ** (1 / count))


def _lift(matrices: Array, slope: float) -> Array:
    """U f(Σ) V' with f(σ) = σ(a + bσ²)/(1 + cσ²) of slope a, which maps [0, 1] into itself and 1 to 1."""
    b = (slope - 1.0) ** 2 / 4.0
    c = slope + b - 1.0
    identity = _identity(matrices)
    inverse = _inverse(settle(identity + c * _gram(matrices)))
    return contract("ri,ij->rj", matrices, settle((b / c) * identity + (slope - b / c) * inverse))


def _gram(matrices: Array) -> Array:
    # the copy with the axes in the order of the sum halves the time of the product
    return settle(contract("ir,rj->ij", settle(jnp.swapaxes(matrices, 0, 1)), matrices))


def _identity(matrices: Array) -> Array:
    return jnp.eye(matrices.shape[1], dtype=matrices.dtype)[..., None]


def _inverse(matrices: Array) -> Array:
    """The inverses of symmetric matrices whose eigenvalues are at least 1, by sweeps of one pivot after the other."""
    number = len(matrices)
    rows = jax.lax.broadcasted_iota(jnp.int32, (number, 1, 1), 0)
    columns = jax.lax.broadcasted_iota(jnp.int32, (1, number, 1), 1)

    def sweep(k: Array, x: Array) -> Array:
        row = jax.lax.dynamic_index_in_dim(x, k, 0)
        pivot = jax.lax.dynamic_index_in_dim(row, k, 1)
        row = settle(jnp.where(columns == k, 1.0, row) / pivot)
        column = settle(jnp.where(rows == k, 0.0, jax.lax.dynamic_index_in_dim(x, k, 1)))
        return settle(jnp.where(rows == k, row, jnp.where(columns == k, 0.0, x) - column * row))

    inverses: Array = jax.lax.fori_loop(0, number, sweep, matrices)
    return inverses
