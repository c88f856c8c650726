"""Linear programs over the unit ball of the norm from ℓ∞ to ℓ1, by cutting planes s'Mt ≤ 1 over vectors of signs."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from attsvm._utils.shapes import Bool, Float

Vector = Float[np.ndarray, " k"]

GOOD_GAP = 1e-11
"""The relative gap at which no more cuts are added, and the violation from which a cut is."""

MOST_ROUNDS = 100
FEWEST_CUTS = 60
"""Cuts that one point adds at most, if the matrices have fewer entries."""

BLOCK = 12
"""Signs that differ between the vectors that are multiplied together: 2^12 vectors."""


class Atoms(NamedTuple):
    """A sum Σ c_j s_j t_j'."""

    coefficients: Float[np.ndarray, " N"]
    left: Float[np.ndarray, "N d_k"]  # left, right: the vectors of signs s_j and t_j
    right: Float[np.ndarray, "N d_q"]

    @property
    def sum(self) -> Float[np.ndarray, "d_k d_q"]:
        return np.asarray((self.left * self.coefficients[:, None]).T @ self.right)

    @property
    def size(self) -> float:
        """Return Σ |c_j|, a bound on the norm of the sum."""
        return float(np.abs(self.coefficients).sum())


class SignBounds(NamedTuple):
    """Both sides of the program."""

    multipliers: Vector  # shape (k,), the best y in the ball
    atoms: Atoms  # their size is a bound on the optimum from above
    rounds: int


@lru_cache(maxsize=4)
def _first_signs(number: int) -> Float[np.ndarray, "N k"]:
    codes = np.arange(2**number)
    return 1.0 - 2.0 * ((codes[:, None] >> np.arange(number)) & 1)


def _all_signs(number: int) -> Iterator[Float[np.ndarray, "N k"]]:
    """Yield all vectors of signs with first entry 1, in blocks; −s t' is the same for −s and t as for s and −t."""
    fast = min(number - 1, BLOCK)
    block = _first_signs(fast)
    for rest in _first_signs(number - 1 - fast):
        yield np.hstack([np.ones((len(block), 1)), block, np.broadcast_to(rest, (len(block), len(rest)))])


def most_over_signs(matrix: Float[np.ndarray, "d_k d_q"]) -> float:
    """Return the largest s'Mt, by enumeration of the vectors of signs on the shorter side."""
    short = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return max(float(np.abs(signs @ short).sum(axis=1).max()) for signs in _all_signs(len(short)))


def best_signs(
    matrix: Float[np.ndarray, "d_k d_q"], number: int
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N d_k"], Float[np.ndarray, "N d_q"]]:
    """Find the s and t with the largest s'Mt, one t for each s, in descending order, and these products."""
    if matrix.shape[0] > matrix.shape[1]:
        values, right, left = best_signs(matrix.T, number)
        return values, left, right
    parts = []
    for signs in _all_signs(len(matrix)):
        sums = np.abs(signs @ matrix).sum(axis=1)
        best = np.argsort(-sums)[:number]
        parts.append((sums[best], signs[best]))
    values, left = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.argsort(-values)[:number]
    left = left[order]
    return values[order], left, np.where(left @ matrix >= 0, 1.0, -1.0)


def largest_in_dual_ball(
    gain: Vector,
    matrices: Float[np.ndarray, "k d_k d_q"],
    free: Bool[np.ndarray, " k"],
    start: Vector,
    patience: int = MOST_ROUNDS,
    good_gap: float = GOOD_GAP,
    max_steps: int | None = None,
    report: Callable[[int, float], bool] | None = None,
) -> SignBounds:
    """Find the largest gain'y with s'(Σ y_k M_k)t ≤ 1 for all vectors of signs, and y_k ≥ 0 where it is not free.

    Each round solves the program with the cuts so far. It adds the best ones at its solution, and half way between it
    and the best point of the ball, where they cut deeper.

    ``gain``: shape (k,). ``start``: shape (k,), with positive gain. ``patience``: the rounds end when the bound from
    above has not become smaller for this many, although none of them proved it. ``good_gap``: the relative gap at which
    no more cuts are added, if it is above ``GOOD_GAP``. ``max_steps``: the largest number of rounds, by default 100.
    ``report``: called as ``report(rounds, relative gap)`` before each round and at the end; a true return value ends
    them.
    """
    largest = float(np.abs(gain).max())
    gain = gain / largest  # the tolerances of the linear programs are absolute
    flat = matrices.reshape(len(matrices), -1)
    entries = np.concatenate([flat, -flat], axis=1).T  # a matrix in the ball has no entry above 1
    cuts = _Cuts(gain, matrices)
    cuts.add(2 * start / most_over_signs(cuts.at(start)))
    bounds = [(None if each else 0.0, None) for each in free]
    atoms = Atoms(np.zeros(0), cuts.left[:0], cuts.right[:0])
    upper, waited, ended = np.inf, 0, False
    good_gap, limit = max(good_gap, GOOD_GAP), max_steps or MOST_ROUNDS
    for rounds in range(limit + 1):
        stopped = report is not None and report(rounds, float(max(1 - cuts.lower / upper, 0.0)))
        if stopped or ended or rounds == limit:
            break
        rows = np.concatenate([cuts.rows, entries])
        found = scipy.optimize.linprog(-gain, A_ub=rows, b_ub=np.ones(len(rows)), bounds=bounds, method="highs")
        if found.x is None:
            break
        atoms = _atoms(-found.ineqlin.marginals, cuts.left, cuts.right)
        waited = waited + 1 if gain @ found.x >= (1 - good_gap) * upper else 0
        upper = float(gain @ found.x)
        added = cuts.add(found.x) + cuts.add(0.5 * (found.x + cuts.best))
        ended = upper - cuts.lower <= good_gap * upper or not added or waited == patience
    return SignBounds(cuts.best, atoms._replace(coefficients=largest * atoms.coefficients), rounds)


class _Cuts:
    """The cuts so far, and the best point of the ball with its gain, which is a bound from below."""

    def __init__(self, gain: Vector, matrices: Float[np.ndarray, "k d_k d_q"]) -> None:
        self.gain, self.matrices = gain, matrices
        _, rows, columns = matrices.shape
        self.most = max(FEWEST_CUTS, rows * columns)
        self.left, self.right, self.rows = np.empty((0, rows)), np.empty((0, columns)), np.empty((0, len(gain)))
        self.best, self.lower = np.zeros_like(gain), 0.0

    def at(self, point: Vector) -> Float[np.ndarray, "d_k d_q"]:
        """Compute Σ y_k M_k."""
        return np.asarray(np.tensordot(point, self.matrices, 1))

    def add(self, point: Vector) -> int:
        """Add the cuts that are violated most at a point, and return their number."""
        values, s, t = best_signs(self.at(point), self.most)
        if self.gain @ point > self.lower * values[0]:
            self.best, self.lower = point / values[0], float(self.gain @ point) / values[0]
        deep = values > 1 + GOOD_GAP
        s, t = s[deep], t[deep]
        self.left, self.right = np.concatenate([self.left, s]), np.concatenate([self.right, t])
        atoms = (s[:, :, None] * t[:, None, :]).reshape(len(s), s.shape[1] * t.shape[1])
        self.rows = np.concatenate([self.rows, atoms @ self.matrices.reshape(len(self.gain), -1).T])
        return len(s)


def _atoms(multipliers: Vector, left: Float[np.ndarray, "N d_k"], right: Float[np.ndarray, "N d_q"]) -> Atoms:
    """Collect the atoms with positive multipliers; those of the entries ±e_i e_j' follow the others."""
    rows, columns = left.shape[1], right.shape[1]
    used = np.flatnonzero(multipliers[: len(left)])
    above, below = multipliers[len(left) :].reshape(2, rows, columns)
    entries = above - below
    i, j = np.nonzero(entries)
    # the entry (i, j) alone is the mean of four matrices of signs: those of e_i and e_j, and all other signs ±
    s, t = np.ones((4, len(i), rows)), np.ones((4, len(j), columns))
    s[2:], t[1::2] = -1.0, -1.0
    s[:, np.arange(len(i)), i] = t[:, np.arange(len(j)), j] = 1.0
    return Atoms(
        np.concatenate([multipliers[used], *[0.25 * entries[i, j]] * 4]),
        np.concatenate([left[used], *s]),
        np.concatenate([right[used], *t]),
    )
