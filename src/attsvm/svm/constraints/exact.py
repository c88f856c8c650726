"""A(W) and A*(λ) of one problem in integers, for answers whose status rounding errors leave open."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights

MOST_MULTIPLICATIONS = 3_000_000
"""Larger products are not made in integers. Each multiplication takes about 0.1 µs."""

DIGITS = 53
"""Binary digits of a float."""


class Integers(NamedTuple):
    """The numbers ``digits · 2**exponent``; the digits are Python integers of any size."""

    digits: np.ndarray
    exponent: int

    @classmethod
    def of(cls, array: np.ndarray) -> "Integers":
        """Finite floats as integers, without rounding."""
        mantissa, exponent = np.frexp(array)
        least = int(exponent.min(where=mantissa != 0, initial=2**15))
        digits = np.ldexp(mantissa, DIGITS).astype(np.int64).astype(object)
        return cls(digits << np.where(mantissa != 0, exponent - least, 0).astype(object), least - DIGITS)

    def __matmul__(self, other: "Integers") -> "Integers":
        return Integers(self.digits @ other.digits, self.exponent + other.exponent)

    def minus(self, array: np.ndarray) -> "Integers":
        if self.exponent > 0:
            return Integers((self.digits << self.exponent) - array, 0)
        return Integers(self.digits - (array << -self.exponent), self.exponent)

    def rounded(self) -> np.ndarray:
        """The nearest floats, up to the last digit."""
        return np.array([_rounded(number, self.exponent) for number in self.digits.flat]).reshape(self.digits.shape)


def _rounded(number: int, exponent: int) -> float:
    drop = max(0, number.bit_length() - 2 * DIGITS)
    try:
        return float(np.ldexp(float(number >> drop), exponent + drop))
    except OverflowError:
        return float("inf")


class ExactConstraints:
    """The constraints of one problem, from the keys and queries as they were given.

    ``constraints``: without batch axes, and with ``given``.
    """

    def __init__(self, constraints: Constraints) -> None:
        assert constraints.given is not None
        keys, queries, self._first = constraints.given
        self._shape = constraints.right.shape
        self._rows: Bool[np.ndarray, "n Q T"] = constraints.rows_mask.reshape(self._first.shape)
        self._right: Any = constraints.right.reshape(self._first.shape).astype(np.int64).astype(object)
        self._keys, self._queries = Integers.of(keys), Integers.of(queries)

    @staticmethod
    def affordable(constraints: Constraints) -> bool:
        """Whether the products of one problem take at most about a third of a second."""
        if constraints.given is None:
            return False
        *_, n, Q, T = constraints.given.first.shape
        d_k, d_q = constraints.weights_shape
        return bool(n * Q * d_k * (T + d_q) <= MOST_MULTIPLICATIONS)

    def slack(self, weights: Weights) -> TokenValues:
        """A(W) − b, rounded only at the end; 0 where there is no row."""
        logits = (
            self._queries @ Integers.of(weights.T) @ Integers(self._keys.digits.swapaxes(-1, -2), self._keys.exponent)
        )
        own = np.take_along_axis(logits.digits, self._first.argmax(axis=-1)[..., None], axis=-1)
        slack = Integers(own - logits.digits, logits.exponent).minus(self._right).rounded()
        return np.where(self._rows, slack, 0.0).reshape(self._shape)

    def adjoint(self, multipliers: TokenValues) -> Weights:
        """A*(λ), rounded only at the end; ``multipliers`` must be 0 where there is no row."""
        own = Integers.of(multipliers.reshape(self._first.shape))
        total = own.digits.sum(axis=-1, keepdims=True)
        signed = Integers(np.where(self._first, total, 0) - own.digits, own.exponent)
        pulled = signed @ self._keys  # (n, Q, d_k): Σ_t λ_t (k_r − k_t)
        joined = Integers(pulled.digits.reshape(-1, pulled.digits.shape[-1]).T, pulled.exponent)
        queries = Integers(self._queries.digits.reshape(-1, self._queries.digits.shape[-1]), self._queries.exponent)
        return (joined @ queries).rounded()
