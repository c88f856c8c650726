"""The constraints of one problem with products in whole numbers: nothing is rounded but the results.

They decide where a bound on the rounding errors is too large: rows of very different scales, and margins that nearly
contradict each other.
"""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from attsvm.problem import Problem
from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights

MOST_PRODUCTS = 4_000_000
"""With more multiplications of whole numbers, which take 0.2 µs each, a problem keeps the bounds on rounding errors."""

Whole = tuple[np.ndarray, int]
"""Python's integers, and the power of two that divides them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactConstraints(Constraints):
    """Constraints with the keys and queries of the problem itself: of H heads if their weights are stacked."""

    is_exact: ClassVar[bool] = True
    own_keys: Whole  # (H, n, T, d_k)
    own_queries: Whole  # (H, n, Q, d_q)
    reference: np.ndarray  # (H, n, Q, 1), the token that a row subtracts from

    @classmethod
    def of_problem(cls, constraints: Constraints, problem: Problem, sets: TokenMask, k: int) -> Constraints:
        """Those of the k-th problem of a batch.

        They are without exact products if the problem has biases or is too large, or b has rounding errors.
        """
        batch, shape = sets.shape[:-3], constraints.batch_shape
        one = constraints[np.unravel_index(k, shape)]
        if one.biases is not None:
            return one
        keys, queries, *_ = problem.terms
        products = one.inequality.size * (keys.shape[-1] + one.keys[..., 0, :].size * queries.shape[-1] / one.keys.size)
        if products > MOST_PRODUCTS or (one.center_length or 0) > 0:
            return one

        def own(array: np.ndarray) -> np.ndarray:
            each = np.broadcast_to(array, batch + array.shape[-3:])
            return np.asarray(each.reshape(int(np.prod(shape)), -1, *array.shape[-3:])[k])

        parts = (getattr(one, field.name) for field in fields(Constraints))
        reference = own(sets).argmax(axis=-1)[..., None]
        return cls(*parts, own_keys=_whole(own(keys)), own_queries=_whole(own(queries)), reference=reference)

    def apply(self, weights: Weights) -> TokenValues:
        """A(W), rounded once."""
        return self.slack(weights, 0.0 * self.right)

    def slack(self, weights: Weights, right: TokenValues | None = None) -> TokenValues:
        """A(W) − b, rounded once."""
        (keys, places), (queries, more) = self.own_keys, self.own_queries
        numbers, most = _whole(weights.reshape(len(keys), 1, keys.shape[-1], -1))
        logits = queries @ numbers.mT @ keys.mT
        margins = np.take_along_axis(logits, self.reference, axis=-1) - logits
        b, own = _whole(self.right if right is None else right)
        most += places + more
        slack = (margins.reshape(b.shape) << own) - (b << most)
        return _rounded(slack * self.rows_mask, most + own)

    def adjoint(self, multipliers: TokenValues) -> Weights:
        """A*(λ), rounded once."""
        (keys, places), (queries, more) = self.own_keys, self.own_queries
        numbers, most = _whole(multipliers.reshape(*self.reference.shape[:-1], -1))
        coefficients = -numbers
        np.put_along_axis(coefficients, self.reference, numbers.sum(axis=-1, keepdims=True), axis=-1)
        pulled, queries = (part.reshape(len(keys), -1, part.shape[-1]) for part in (coefficients @ keys, queries))
        return _rounded(pulled.mT @ queries, places + more + most).reshape(self.weights_shape)


def _whole(array: np.ndarray) -> Whole:
    # what masked tokens have that is not finite is never used
    mantissa, exponent = np.frexp(np.where(np.isfinite(array), array, 0.0))
    exponent = np.where(mantissa == 0, 0, exponent - 53)
    least = min(0, int(exponent.min(initial=0)))
    return np.ldexp(mantissa, 53).astype(np.int64).astype(object) << (exponent - least).astype(object), -least


def _rounded(numbers: np.ndarray, places: int) -> np.ndarray:
    try:
        return np.asarray(numbers / (1 << places), np.float64)
    except OverflowError:
        return np.full(numbers.shape, np.nan)  # which proves nothing
