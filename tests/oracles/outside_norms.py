"""Norms as a user writes them: ℓ2,1 and ℓ∞,2 over rows, and one with nothing but its value."""

from dataclasses import dataclass

import numpy as np

from attsvm.norms import Norm


def row_lengths(x):
    return np.linalg.norm(x.reshape(len(x), -1), axis=1)


def shrunk(x, step):
    return np.maximum(x - step, 0.0)


def capped(x, total):
    """The nearest point to x ≥ 0 whose distance to it sums to ``total``: the prox of the largest entry."""
    if x.sum() <= total:
        return np.zeros_like(x)
    ordered = np.sort(x)[::-1]
    caps = (np.cumsum(ordered) - total) / np.arange(1, len(x) + 1)
    return np.minimum(x, caps[np.flatnonzero(ordered > caps)[-1]])


def scaled_rows(x, factors):
    return x * factors.reshape(-1, *[1] * (x.ndim - 1))


def unit_rows(g):
    """The steepest direction of the largest length of a row, in NumPy and in JAX."""
    xp = g.__array_namespace__()
    lengths = xp.sqrt(xp.sum(g * g, axis=-1, keepdims=True))
    return g / xp.where(lengths > 0, lengths, 1.0)


def longest_row(g):
    """The steepest direction of the sum of the lengths of the rows, in NumPy and in JAX."""
    xp = g.__array_namespace__()
    lengths = xp.sqrt(xp.sum(xp.reshape(g, (len(g), -1)) ** 2, axis=1))
    first = xp.reshape(xp.arange(len(g)) == xp.argmax(lengths), (-1, *[1] * (g.ndim - 1)))
    return xp.where(first & (xp.max(lengths) > 0), g / xp.where(xp.max(lengths) > 0, xp.max(lengths), 1.0), 0.0)


@dataclass(frozen=True)
class SumOfRows(Norm):
    """ℓ2,1 over rows, by its proximal map."""

    name = "sum-of-rows"
    right_invariant = True

    def value(self, x, axes=2):
        return float(row_lengths(x).sum())

    @property
    def dual(self):
        return LargestRow()

    def prox(self, x, step):
        lengths = row_lengths(x)
        return scaled_rows(x, shrunk(lengths, step) / np.maximum(lengths, 1e-300))


@dataclass(frozen=True)
class LargestRow(Norm):
    """ℓ∞,2 over rows, by its proximal map."""

    name = "largest-row"
    right_invariant = True

    def value(self, x, axes=2):
        return float(row_lengths(x).max())

    @property
    def dual(self):
        return SumOfRows()

    def prox(self, x, step):
        lengths = row_lengths(x)
        return scaled_rows(x, capped(lengths, step) / np.maximum(lengths, 1e-300))


@dataclass(frozen=True)
class ValueOnly(Norm):
    """The sum of all entries' sizes, without a dual, a map or a direction."""

    name = "value-only"

    def value(self, x, axes=2):
        return float(np.abs(x).sum())
