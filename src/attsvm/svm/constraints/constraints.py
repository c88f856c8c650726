"""The constraints of an Att-SVM, A(W) ≥ b, by products with keys and queries: the rows themselves are never stored."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int, Shaped
from attsvm.errors import ProblemError
from attsvm.problem import Problem, join_blocks
from attsvm.svm.constraints.biases import BiasRows, WeightBlocks
from attsvm.svm.tolerances import DEPENDENT, EPS

Weights = Float[np.ndarray, "*batch d_k d_q"]
TokenValues = Float[np.ndarray, "*batch n Q T"]
TokenMask = Bool[np.ndarray, "*batch n Q T"]

SMALL_NUMBERS = 30_000
"""With at most this many numbers in the rows of a problem, Newton's and the simplex method are the fastest."""

MOST_UNKNOWNS = 400
"""Unknowns of the largest dense equations: with more, a step takes longer than the whole of other methods."""

STORED_NUMBERS = 100_000
"""Rows with at most this many numbers in a problem are written out. Above, products with their factors are faster."""

MOST_PROJECTION_STEPS = 1_000
"""Largest number of conjugate gradient steps if the rows are not stored."""

LENGTHS = 1e-90, 1e90
"""Norms of rows between which neither their squares nor those of the weights overflow or underflow."""

ALL_TOKENS = (-3, -2, -1)
"""The axes (n, Q, T)."""


class Rows(NamedTuple):
    """The constraints of one problem written out, each scaled to unit norm; for small problems."""

    matrix: Float[np.ndarray, "m D"]
    right: Float[np.ndarray, " m"]
    equality: Bool[np.ndarray, " m"]
    position: Int[np.ndarray, " m"]  # of each row in the flattened (n, Q, T)


@dataclass(frozen=True, eq=False)
class Constraints:
    """One row (k_r − k_t) z' for each query and each token t that it may attend to, except its reference token r.

    The reference is the selected token, or the first token of a selected set. Rows of tokens outside the set are
    inequalities, with right side 1, or 0 where relaxed; rows of the set's other tokens are equalities with 0. Of tokens
    with equal keys only the first one counts.
    """

    is_exact: ClassVar[bool] = False  # whether products are rounded only once
    # shifted by one vector per sequence. This changes no row, and the differences of keys lose fewer digits. If a
    # sequence has one query, the shift is by the reference, and the keys are the left factors of the rows.
    keys: Float[np.ndarray, "*batch n T d_k"]
    queries: Float[np.ndarray, "*batch n Q d_q"]
    references: Float[np.ndarray, "*batch n Q d_k"] | None  # the (shifted) reference keys; None where they are zero
    inequality: TokenMask  # inequality, equality: ``equality`` is None where every set has a single token
    equality: TokenMask | None
    right: TokenValues  # b: 1 where a margin of 1 is required, else 0; or h = b − A(W_0) of any sign
    # ‖W_0‖_F of the centre from which weights are measured, in which h has rounding errors; None if b is 0 or 1
    center_length: Float[np.ndarray, "*batch"] | None = None
    biases: BiasRows | None = None  # of the second block of weights, if they have two

    @classmethod
    def of(
        cls, problem: Problem, sets: TokenMask, relaxed: Bool[np.ndarray, "*batch n Q"] | None = None
    ) -> "Constraints":
        """The constraints that keep ``sets`` (as :func:`attsvm.selection.selection_sets` gives them).

        In small problems, each query becomes a sequence of its own: (n, Q) = (nQ, 1) from then on. This copies the
        tokens, and keeps all digits of rows that are much shorter than their tokens.
        """
        keys, queries, index, _ = problem.terms
        inequality = problem.copies.distinct & ~sets
        if problem.copies.first is not None:
            sets = sets & problem.copies.distinct
        right = inequality.astype(np.float64)
        if relaxed is not None:
            right *= ~relaxed[..., None]
        equality, first = None, sets
        if np.count_nonzero(sets) > np.count_nonzero(np.logical_or.reduce(sets, axis=-1)):
            first = sets & (np.cumsum(sets, axis=-1) == 1)
            equality = sets & ~first
        picks = first.astype(np.float64)  # a product with the one-hot selection picks the reference exactly
        n, Q, T = sets.shape[-3:]
        biases = None
        if index is not None:
            index = np.broadcast_to(index, sets.shape)
            reference = np.take_along_axis(index, first.argmax(axis=-1)[..., None], axis=-1)
            biases = BiasRows(index, reference, problem.num_biases)
        if Q > 1 and n * Q * T * keys.shape[-1] <= STORED_NUMBERS:
            differences = keys[..., None, :, :] - picks[..., None, :] @ keys[..., None, :, :]
            return cls(
                _join(differences, -4),
                _join(queries[..., None, :], -4),
                None,
                _join(inequality[..., None, :], -4),
                None if equality is None else _join(equality[..., None, :], -4),
                _join(right[..., None, :], -4),
                biases=None if biases is None else biases.changed(lambda x: _join(x[..., None, :], -4)),
            )
        if Q == 1:
            return cls(keys - picks @ keys, queries, None, inequality, equality, right, biases=biases)
        keys = keys - keys.mean(axis=-2, keepdims=True)
        return cls(keys, queries, picks @ keys, inequality, equality, right, biases=biases)

    @cached_property
    def batch_shape(self) -> tuple[int, ...]:
        return self.inequality.shape[:-3]

    @property
    def weights_shape(self) -> tuple[int, int]:
        more, column = (0, 0) if self.biases is None else (self.biases.number, 1)
        return self.keys.shape[-1] + more, self.queries.shape[-1] + column

    @property
    def blocks(self) -> WeightBlocks | None:
        """The blocks of the weights; None if they have one."""
        return None if self.biases is None else WeightBlocks(self.keys.shape[-1], self.queries.shape[-1])

    def _split(self, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        return weights[..., : self.keys.shape[-1], : self.queries.shape[-1]], weights[..., self.keys.shape[-1] :, -1]

    @cached_property
    def rows_mask(self) -> TokenMask:
        """Where there is a row, inequality or equality."""
        return self.inequality if self.equality is None else self.inequality | self.equality

    @cached_property
    def margin_mask(self) -> TokenMask:
        """Where a positive margin is required."""
        return self.right > 0

    @cached_property
    def asks_margin(self) -> Bool[np.ndarray, "*batch"]:
        """Which problems have a row that requires a positive margin; the solution of the others is 0."""
        return np.asarray(np.logical_or.reduce(self.flat(self.margin_mask), axis=-1))

    @cached_property
    def has_relaxed(self) -> bool:
        """Whether any inequality requires no positive margin."""
        return bool(np.count_nonzero(self.margin_mask) < np.count_nonzero(self.inequality))

    @cached_property
    def most_rows(self) -> int:
        """Rows of the problem that has the most."""
        numbers = np.add.reduce(self.flat(self.rows_mask), axis=-1, dtype=np.intp)
        return int(np.maximum.reduce(numbers, axis=None, initial=0))

    @cached_property
    def norms(self) -> TokenValues:
        """Frobenius norms ‖k_r − k_t‖ ‖z‖ of the rows; 0 where there is none."""
        if self.references is None:
            left = np.sqrt(np.vecdot(self.keys, self.keys))[..., None, :]
        else:
            left = np.empty(self.inequality.shape)
            for q in range(left.shape[-2]):  # one at a time, because all together would copy the tokens Q times
                difference = self.keys - self.references[..., q, None, :]
                left[..., q, :] = np.sqrt(np.vecdot(difference, difference))
        norms = left * np.sqrt(np.vecdot(self.queries, self.queries))[..., None]
        if self.biases is not None:
            norms = np.hypot(norms, np.sqrt(self.biases.squares))
        return np.asarray(norms * self.rows_mask)

    @cached_property
    def sizes(self) -> TokenValues:
        """Bounds on the norms of the rows that also bound the numbers from which products with them are computed."""
        if self.references is None:
            return self.norms
        left = np.sqrt(np.vecdot(self.keys, self.keys))[..., None, :]
        left = left + np.sqrt(np.vecdot(self.references, self.references))[..., None]
        sizes = left * np.sqrt(np.vecdot(self.queries, self.queries))[..., None]
        if self.biases is not None:
            sizes = np.hypot(sizes, np.sqrt(self.biases.squares))
        return np.asarray(sizes * self.rows_mask)

    def apply(self, weights: Weights) -> TokenValues:
        """A(W): the logit of the reference minus that of each other token; 0 where there is no row."""
        if self.biases is None:
            return np.asarray(self.compared(self.queries @ weights.mT[..., None, :, :]) * self.rows_mask)
        W, b = self._split(weights)
        return np.asarray((self.compared(self.queries @ W.mT[..., None, :, :]) + self.biases.apply(b)) * self.rows_mask)

    def slack(self, weights: Weights) -> TokenValues:
        """A(W) − b."""
        return np.asarray(self.apply(weights) - self.right)

    def magnitude(self, weights: Weights) -> TokenValues:
        """Compute |A||W|, by which the rounding errors of A(W) are bounded row by row."""
        W, b = (weights, None) if self.biases is None else self._split(weights)
        images = abs(self.queries) @ abs(W).mT[..., None, :, :]
        sums = images @ abs(self.keys).mT
        if self.references is not None:
            sums += np.vecdot(images, abs(self.references))[..., None]
        if self.biases is not None and b is not None:
            sums = sums + self.biases.magnitude(b)
        return np.asarray(sums * self.rows_mask)

    def adjoint(self, multipliers: TokenValues) -> Weights:
        """A*(λ) = Σ λ_it (k_r − k_t) z_i'; ``multipliers`` must be 0 where there is no row."""
        W = np.asarray(_join(self.pulled(multipliers), -3).mT @ _join(self.queries, -3))
        return W if self.biases is None else join_blocks(W, self.biases.adjoint(multipliers))

    def compared(self, images: Float[np.ndarray, "*batch n Q d_k"]) -> TokenValues:
        """(k_r − k_t)'x for each token t, row or not, given a vector x for each query: A(W) for x = W z."""
        above = images @ self.keys.mT
        np.negative(above, out=above)
        if self.references is not None:
            above += np.vecdot(images, self.references)[..., None]
        return np.asarray(above)

    def pulled(self, multipliers: TokenValues) -> Float[np.ndarray, "*batch n Q d_k"]:
        """Σ_t λ_t (k_r − k_t) for each query; ``multipliers`` must be 0 where there is no row."""
        sums = multipliers @ self.keys
        np.negative(sums, out=sums)
        if self.references is not None:
            sums += multipliers.sum(axis=-1)[..., None] * self.references
        return np.asarray(sums)

    def smallest_margin(self, weights: Weights, where: TokenMask | None = None) -> Float[np.ndarray, "*batch"]:
        """The smallest A(W)/b over the rows with b > 0, or over some of them; ∞ without any.

        Divided by it, the weights keep these rows.
        """
        margins, asked = self.apply(weights), self.margin_mask if where is None else self.margin_mask & where
        if self.center_length is not None:
            margins = margins / np.where(asked, self.right, 1.0)
        smallest: Float[np.ndarray, "*batch"] = np.minimum.reduce(
            self.flat(margins), axis=-1, where=self.flat(asked), initial=np.inf
        )
        return smallest

    def check_lengths(self) -> None:
        """Check that the lengths of the rows allow a solution and a certificate in doubles.

        Raises ProblemError if a row that is not zero is shorter than 1e-90 or longer than 1e90.
        """
        norms = self.flat(self.norms)
        wrong = ~(norms <= LENGTHS[1])  # NaN where the squares of a masked token overflow
        short = self.flat(self.rows_mask) & (norms < LENGTHS[0])
        if short.any():
            position = np.flatnonzero(short.any(axis=tuple(range(short.ndim - 1))))
            pair = self.differences(position), self.queries_of(position)
            factors = [pair] if self.blocks is None else self.blocks.each(*pair)
            is_zero = ~reduce(np.logical_or, [rows.any(axis=-1) & z.any(axis=-1) for rows, z in factors])
            wrong[..., position] |= short[..., position] & ~is_zero
        if wrong.any():
            keys, queries = (float(np.abs(each).max()) for each in (self.keys, self.queries))
            raise ProblemError(
                "problem: expected differences of keys whose lengths, times the lengths of the queries, are 0 or "
                f"between {LENGTHS[0]:g} and {LENGTHS[1]:g}, got keys up to {keys:.3g} and queries up to {queries:.3g}"
                "; scale them"
            )

    def flat(self, array: np.ndarray) -> Shaped[np.ndarray, "*batch R"]:
        """An array over (n, Q, T) with these axes joined."""
        return array.reshape(*self.batch_shape, -1)

    def with_one_axis(self) -> "Constraints":
        """The leading axes joined to one, of length 1 where there are none."""
        if len(self.batch_shape) == 1:
            return self
        if not self.batch_shape:
            return self[None]

        def joined(array: np.ndarray) -> np.ndarray:
            return self._in_each(array).reshape(-1, *array.shape[-3:])

        return self._with_norms(
            Constraints(
                joined(self.keys),
                joined(self.queries),
                None if self.references is None else joined(self.references),
                joined(self.inequality),
                None if self.equality is None else joined(self.equality),
                joined(self.right),
                None if self.center_length is None else self.center_length.reshape(-1),
                None if self.biases is None else self.biases.changed(joined),
            ),
            joined,
        )

    def _with_norms(self, part: "Constraints", change: Callable[[np.ndarray], np.ndarray]) -> "Constraints":
        """A part of these constraints, with the norms of its rows where they are known."""
        if "norms" in self.__dict__:
            part.__dict__["norms"] = change(self.norms)
        return part

    def rows(self, which: TokenMask | None = None) -> Rows:
        """The rows of one problem (without leading axes) at unit norm; rows of zeros are left out.

        ``which``: the rows to return; by default all.

        Raises ValueError if there are leading axes.
        """
        if self.batch_shape:
            raise ValueError("rows are written out one problem at a time")
        norms = self.norms.reshape(-1)
        position = np.flatnonzero(norms if which is None else norms * which.reshape(-1))
        norms = norms[position]
        left = self.differences(position) / -norms[:, None]
        matrix = left[:, :, None] * self.queries_of(position)[:, None, :]
        matrix = matrix if self.blocks is None else self.blocks.only(matrix)
        matrix = matrix.reshape(len(position), math.prod(self.weights_shape))
        right = self.right.reshape(-1)[position] / norms
        equality = np.zeros(len(position), bool) if self.equality is None else self.equality.reshape(-1)[position]
        return Rows(matrix, right, equality, position)

    def counted(self, position: Int[np.ndarray, "*some"]) -> tuple[Int[np.ndarray, "*some"], Int[np.ndarray, "*some"]]:
        """The query and the token of rows at positions of the flattened (n, Q, T), counted over all sequences."""
        Q, T = self.inequality.shape[-2:]
        query = position // T
        if Q == 1:  # then tokens are counted as positions are
            return query, position
        return query, query // Q * T + position % T

    def differences(self, position: Int[np.ndarray, " m"]) -> Float[np.ndarray, "*batch m D_k"]:
        """k_t − k_r of the rows at these positions: their left factors, with the opposite sign.

        With two blocks, those of both.
        """
        Q, T = self.inequality.shape[-2:]
        token = position if Q == 1 else self.counted(position)[1]
        left = _join(self.keys, -3).take(token, axis=-2)
        if self.references is not None:
            left = left - _join(self.references, -3).take(position // T, axis=-2)
        left = self._in_each(left, 2)
        return left if self.biases is None else np.concatenate([left, self.biases.differences(position)], axis=-1)

    def queries_of(self, position: Int[np.ndarray, " m"]) -> Float[np.ndarray, "*batch m D_q"]:
        """The queries z of the rows at these positions, with two blocks (z, 1): their right factors."""
        queries = self._in_each(_join(self.queries, -3).take(position // self.inequality.shape[-1], axis=-2), 2)
        return queries if self.biases is None else np.concatenate([queries, np.ones_like(queries[..., :1])], axis=-1)

    def _in_each(self, array: np.ndarray, own_axes: int = 3) -> np.ndarray:
        """An array that problems may share, with all batch axes; its last ``own_axes`` axes are not of the batch."""
        split = array.ndim - own_axes
        if array.shape[:split] == self.batch_shape:
            return array
        return np.broadcast_to(array, self.batch_shape + array.shape[split:])

    def spread(self, multipliers: Float[np.ndarray, " m"], position: Int[np.ndarray, " m"]) -> TokenValues:
        """Multipliers of unit rows as multipliers of the original rows, in their places."""
        spread = np.zeros(self.inequality.shape)
        spread.reshape(-1)[position] = multipliers / self.norms.reshape(-1)[position]
        return spread

    def project(self, weights: Weights) -> Weights:
        """The nearest weights that satisfy the equalities."""
        if self.equality is None:
            return weights
        if self.batch_shape:
            return np.stack([self[i].project(weights[i]) for i in range(self.batch_shape[0])])
        equality = self.equality & (self.norms > 0)
        if np.count_nonzero(equality) * math.prod(self.weights_shape) > STORED_NUMBERS:
            return self._project_by_products(weights, equality)
        equalities = self.rows(equality).matrix
        flat = weights.reshape(-1)
        for _ in range(2):  # the second projection removes the rounding error of the first
            flat = flat - np.linalg.lstsq(equalities, equalities @ flat, rcond=DEPENDENT)[0]
        return flat.reshape(weights.shape)

    def _project_by_products(self, weights: Weights, equality: TokenMask) -> Weights:
        """Project by conjugate gradients on the multipliers of the equalities, without storing their rows."""
        inverse = np.where(equality, 1 / np.where(equality, self.norms, 1.0), 0.0)
        residual = self.apply(weights) * inverse
        least = (4 * EPS * np.linalg.norm(weights)) ** 2  # rounding errors of A(W)
        direction, square = residual, float(np.vdot(residual, residual))
        for _ in range(MOST_PROJECTION_STEPS):
            if square <= least:
                break
            pulled = self.adjoint(direction * inverse)
            pulled_square = float(np.vdot(pulled, pulled))
            if not pulled_square > 0:  # underflow, or a number that is not finite
                break
            weights = weights - square / pulled_square * pulled
            residual = self.apply(weights) * inverse
            previous, square = square, float(np.vdot(residual, residual))
            direction = residual + square / previous * direction
        return weights

    def __getitem__(self, index: Any) -> "Constraints":
        """The constraints of one problem or of several, selected along the leading axes."""
        part = Constraints(
            self._in_each(self.keys)[index],
            self._in_each(self.queries)[index],
            None if self.references is None else self.references[index],
            self.inequality[index],
            None if self.equality is None else self.equality[index],
            self.right[index],
            None if self.center_length is None else self.center_length[index],
            None if self.biases is None else self.biases.changed(lambda array: array[index]),
        )
        return self._with_norms(part, lambda norms: norms[index])


def check_relaxed(problem: Problem, relaxed: Any, batch: tuple[int, ...]) -> Bool[np.ndarray, "*batch n Q"] | None:
    """Which queries need a margin of 0 only, always with a Q axis; None if no query does.

    Raises ProblemError if ``relaxed`` is not boolean or its shape does not fit.
    """
    if relaxed is None:
        return None
    array = np.asarray(relaxed)
    if array.dtype != bool:
        raise ProblemError(f"relaxed: expected booleans, got entries of type {array.dtype}")
    own = problem.query_shape[len(problem.batch_shape) :]
    if array.shape not in (own, problem.query_shape, batch + own):
        raise ProblemError(f"relaxed: expected shape {batch + own}, got {array.shape}")
    array = np.broadcast_to(array, batch + own)
    if not array.any():
        return None
    return array if problem.has_query_axis else array[..., None]


def _join(array: np.ndarray, axis: int) -> np.ndarray:
    """The axes ``axis`` and ``axis + 1``, counted from the end, as one."""
    return array.reshape(*array.shape[:axis], -1, *array.shape[axis + 2 :])
