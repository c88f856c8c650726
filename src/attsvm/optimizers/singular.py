"""Singular value decompositions of many small matrices at once, by one-sided Jacobi rotations."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import over_entries, settle, total

Array = jax.Array

_MOST_SWEEPS = 30


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
    return 16.0 * float(np.finfo(dtype).eps)


def _sweep(columns: Array, rows: int) -> tuple[Array, Array]:
    """Rotate every pair of columns once; returns the largest cosine between two columns before their rotation."""
    number = columns.shape[1]
    floor = _largest_square(columns[:rows]) * float(np.finfo(columns.dtype).eps) ** 2

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
