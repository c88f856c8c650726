"""Tokens of one query with equal keys: their attention is equal under all weights.

m such tokens act as one token. Its value is the mean of theirs, and its logit is larger by log m. The first of them
that a query may attend to stands for all.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int


@lru_cache(maxsize=16)
def _odd_numbers(length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**64, length, dtype=np.uint64) | np.uint64(1)


def _with_equal_codes(
    keys: Float[np.ndarray, "*batch n T d_k"], in_use: Bool[np.ndarray, "*batch n T"] | None
) -> Bool[np.ndarray, "*batch n"]:
    """The sequences that may hold a key twice: its first number and a sum over its bits occur twice."""
    numbers = keys[..., 0] if in_use is None else np.where(in_use, keys[..., 0], np.nan)
    if not _occur_twice(numbers).any():  # as a rule, which takes a few microseconds
        return np.zeros(keys.shape[:-2], bool)
    bits = (keys + 0.0).view(np.uint64)  # −0 + 0 = 0
    # whole numbers differ in their high bits only, which a product with an odd number does not move down
    codes = np.vecdot(bits ^ (bits >> np.uint64(32)), _odd_numbers(keys.shape[-1]))
    if in_use is not None:
        codes = np.where(in_use, codes, np.arange(codes.shape[-1], dtype=np.uint64))
    return np.asarray(_occur_twice(codes).any(axis=-1))


def _occur_twice(numbers: np.ndarray) -> np.ndarray:
    ordered = np.sort(numbers, axis=-1)
    return np.asarray(ordered[..., 1:] == ordered[..., :-1])


@dataclass(frozen=True, eq=False)
class Copies:
    """The tokens of each query with equal keys.

    Methods take arrays with the axes (*trials, *batch, n, Q, T), and return them as they are if no two keys are equal.
    """

    allowed: Bool[np.ndarray, "*batch n Q T"]
    # the first allowed token with the key of each token; a masked token itself; None if no two keys are equal
    first: Int[np.ndarray, "*batch n Q T"] | None

    @classmethod
    def of(
        cls,
        keys: Float[np.ndarray, "*batch n T d_k"],
        allowed: Bool[np.ndarray, "*batch n Q T"],
        *,
        masked: bool,
        biases: Int[np.ndarray, "*batch n Q T"] | None = None,
    ) -> "Copies":
        """Those of a problem.

        ``masked``: whether some tokens may not be allowed. ``biases``: the number of the bias of each token, which
        equal tokens share.
        """
        in_use = np.asarray(allowed.any(axis=-2)) if masked else None
        candidates = _with_equal_codes(keys, in_use)
        if not np.count_nonzero(candidates):
            return cls(allowed, None)
        T = allowed.shape[-1]
        first = np.broadcast_to(np.arange(T, dtype=np.int32), allowed.shape).copy()
        for index in map(tuple, np.argwhere(candidates)):
            rows, places = keys[index] + 0.0, dict[bytes, list[int]]()
            for t in range(T) if in_use is None else np.flatnonzero(in_use[index]):
                places.setdefault(rows[t].tobytes(), []).append(int(t))
            for equal in places.values():
                if len(equal) > 1:
                    may, of = allowed[index][:, equal], np.array(equal)
                    same = may[:, None, :]
                    if biases is not None:
                        own = biases[index][:, equal]
                        same = same & (own[:, :, None] == own[:, None, :])
                    first[index][:, equal] = np.where(may, of[same.argmax(axis=-1)], of)
        first.flags.writeable = False
        return cls(allowed, first if (first != np.arange(T)).any() else None)

    @cached_property
    def distinct(self) -> Bool[np.ndarray, "*batch n Q T"]:
        """The allowed tokens without those that are represented by an earlier one."""
        return self.allowed if self.first is None else self.allowed & (self.first == np.arange(self.first.shape[-1]))

    @cached_property
    def number(self) -> Float[np.ndarray, "*batch n Q T"]:
        """m, the number of tokens with the key of each token; ones without axes if no two keys are equal."""
        if self.first is None:
            return np.ones(())
        counts = np.zeros(self.first.shape)
        where = np.nonzero(self.allowed)
        np.add.at(counts, (*where[:-1], self.first[where]), 1.0)
        return self.of_first(np.where(self.allowed, counts, 1.0))

    def of_first(self, values: np.ndarray) -> np.ndarray:
        """The value of the first of equal tokens, for each of them."""
        if self.first is None:
            return values
        return np.take_along_axis(values, np.broadcast_to(self.first, values.shape), axis=-1)

    def largest(self, values: np.ndarray) -> np.ndarray:
        """The largest value of equal tokens, for each of them: of booleans whether any is True; NaN if all are NaN."""
        if self.first is None:
            return values
        found, (where, of) = values.copy(), self._places(values.shape)
        (np.logical_or if values.dtype == bool else np.fmax).at(found, of, values[where])
        return self.of_first(found)

    def mean(self, values: np.ndarray, axes: int = 0) -> np.ndarray:
        """The mean over equal tokens, for each of them; exact where their values are equal.

        ``axes``: the number of axes that follow that of the tokens.
        """
        if self.first is None:
            return values
        lead = values.shape[: values.ndim - axes]
        where, of = self._places(lead)
        sums = np.zeros(values.shape)
        np.add.at(sums, of, values[where] - values[of])
        mean: np.ndarray = values + sums / np.broadcast_to(self.number, lead)[(..., *(None,) * axes)]
        mean[where] = mean[of]
        return mean

    def total(self, values: np.ndarray) -> np.ndarray:
        """The sum over equal tokens, for each of them."""
        return values if self.first is None else self.mean(values) * self.number

    def _places(self, shape: tuple[int, ...]) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """The tokens with an equal one before them, and the first of each."""
        assert self.first is not None
        first = np.broadcast_to(self.first, shape)
        where = np.nonzero(first != np.arange(shape[-1]))
        return where, (*where[:-1], first[where])
