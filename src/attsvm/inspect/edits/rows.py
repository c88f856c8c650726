"""Linear constraints on a change of one head's weights, and the smallest change that satisfies all of them.

A row is a sum of one or two products, Σ_k x_k'D u_k ≥ h, in the change D of the weights of the keys or the queries. The
least ‖D‖_F is a quadratic program in multipliers alone, min ½λ'Gλ − h'λ over λ ≥ 0. Its Gram matrix has the entries
Σ_kl (x_k·y_l)(u_k·v_l); D, which has far more entries than there are rows, is needed for the certificate only.
"""

from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Float, Int
from attsvm._utils.threads import threads_for
from attsvm.errors import ProblemError
from attsvm.results import Status
from attsvm.svm import FARKAS_BOUND, DualSearch, UnitRows, block_pivoting

TOLERANCE = 1e-8
"""Largest relative gap of an optimal change, and its largest violation, relative to the largest h if that exceeds 1."""

SETTLED = 1e-10
"""No other method is tried with a smaller gap."""

MOST_PRODUCTS = 3_000
"""Limit for the products with the Gram matrix in the search for one working set."""

MOST_ROUNDS, MOST_ADDED = 60, 400
"""Limits for the rounds in which violated rows join the working set, and for the rows of one round."""

MOST_ASKED = 10_000
"""Limit for the rows with h > 0, whose Gram matrix is stored: 800 MB."""

MISSED = 1e-9
"""A row joins the working set if it is violated by more than this, on unit rows, relative to the largest h."""

VANISHES = 1e-14
"""A row is zero if its square is below this, relative to that of its products: rounding errors of equal products."""

Multipliers = Float[np.ndarray, " m"]


class EditRows(UnitRows):
    """The rows of one head, without those that are zero and hold.

    ``inputs``: x, which the changed weights multiply. ``partners``: u, the other side of the logit times its scale.
    ``wanted``: h. ``query``: which query each row belongs to, any number.
    """

    def __init__(
        self,
        inputs: Float[np.ndarray, "k m d"],
        partners: Float[np.ndarray, "k m d_h"],
        wanted: Float[np.ndarray, " m"],
        query: Int[np.ndarray, " m"],
    ) -> None:
        squares = np.einsum("kmd,lmd->klm", inputs, inputs) * np.einsum("kmd,lmd->klm", partners, partners)
        total, largest = squares.sum(axis=(0, 1)), np.einsum("kkm->m", squares)
        norms = np.where(total > VANISHES * largest, np.sqrt(np.maximum(total, 0.0)), 0.0)
        self.inputs, self.partners, self.wanted, self.query, self.norms = inputs, partners, wanted, query, norms
        super().__init__(norms, wanted, np.ones(len(wanted), bool), wanted > 0, has_equalities=False)

    def __len__(self) -> int:
        return len(self.wanted)

    def __getitem__(self, index: np.ndarray) -> "EditRows":
        return EditRows(self.inputs[:, index], self.partners[:, index], self.wanted[index], self.query[index])

    def joined(self, other: "EditRows") -> "EditRows":
        """These rows, and then the others."""
        return EditRows(
            np.concatenate([self.inputs, other.inputs], axis=1),
            np.concatenate([self.partners, other.partners], axis=1),
            np.concatenate([self.wanted, other.wanted]),
            np.concatenate([self.query, other.query]),
        )

    def apply(self, weights: Float[np.ndarray, "d d_h"]) -> Multipliers:
        """Σ_k x_k'D u_k of the unit rows."""
        return np.asarray(np.einsum("kmh,kmh->m", self.inputs @ weights, self.partners) * self._inverse)

    def adjoint(self, multipliers: Multipliers) -> Float[np.ndarray, "d d_h"]:
        """D = Σ_r λ_r Σ_k x_rk u_rk'."""
        scaled = (multipliers * self._inverse)[:, None]
        total: np.ndarray = np.sum(
            [x.T @ (scaled * u) for x, u in zip(self.inputs, self.partners, strict=True)], axis=0
        )
        return total

    def block(self, rows: Int[np.ndarray, " m"], columns: Int[np.ndarray, " k"]) -> Float[np.ndarray, "m k"]:
        """Σ_kl (x_k·y_l)(u_k·v_l) of the unit rows."""
        total: np.ndarray = np.sum(
            [
                (x[rows] @ y[columns].T) * (u[rows] @ v[columns].T)
                for x, u in zip(self.inputs, self.partners, strict=True)
                for y, v in zip(self.inputs, self.partners, strict=True)
            ],
            axis=0,
        )
        return np.asarray(total * self._inverse[rows, None] * self._inverse[columns])

    def gram(self) -> Float[np.ndarray, "m m"]:
        every = np.arange(len(self))
        return self.block(every, every)


class WeightChange(NamedTuple):
    """The smallest change that was found, with its certificate."""

    status: Status
    weights: Float[np.ndarray, "d d_h"]  # D; zeros if infeasible
    multipliers: Multipliers  # λ of the original rows
    value: float  # ‖D‖_F; ∞ if infeasible, or if no multiple of A'λ satisfies the rows with h > 0
    lower: float  # every D that satisfies the rows has at least this norm: h'λ / ‖A'λ‖_F
    violation: float  # largest h − ⟨row, D⟩, in logits; ∞ if infeasible

    @classmethod
    def of(cls, rows: EditRows, multipliers: Multipliers) -> "WeightChange":
        """What multipliers of the unit rows prove: D = A'λ, scaled to satisfy the rows with h > 0."""
        own, weights = rows.scale * rows.of_original_rows(multipliers), rows.scale * rows.adjoint(multipliers)
        margins, size = rows.norms * rows.apply(weights), float(np.linalg.norm(weights))
        gain = float(rows.wanted @ own)
        lower = gain / size if size > 0 else (np.inf if gain > 0 else 0.0)
        if lower > FARKAS_BOUND * rows.scale:
            return cls(Status.INFEASIBLE, np.zeros_like(weights), own, np.inf, lower, np.inf)
        ratios = np.divide(margins, rows.wanted, out=np.full(len(rows), np.inf), where=rows.wanted > 0)
        least = float(ratios.min(initial=np.inf))
        if not 0 < least < np.inf:  # either nothing has to change, or D = A'λ points away
            done = least == np.inf
            status = Status.OPTIMAL if done else Status.INACCURATE
            return cls(status, weights, own, 0.0 if done else np.inf, lower, 0.0 if done else np.inf)
        value, violation = size / least, float((rows.wanted - margins / least).max(initial=0.0))
        good = abs(1 - lower / value) <= TOLERANCE and violation <= TOLERANCE * max(1.0, float(rows.wanted.max()))
        return cls(Status.OPTIMAL if good else Status.INACCURATE, weights / least, own, value, lower, violation)

    @property
    def gap(self) -> float:
        """|1 − lower/value|; 0 if no change is needed, ∞ if none is known."""
        if self.value == 0 or self.value == np.inf:
            return self.value
        return abs(1.0 - self.lower / self.value)


def least_change(rows: EditRows) -> WeightChange:
    """Solve on the rows with h > 0, and add the worst violated row of each query until there is none."""
    # a zero row that asks for a margin is a contradiction by itself
    impossible = ~rows.there & (rows.wanted > 0)
    if impossible.any():
        nothing = np.zeros((rows.inputs.shape[-1], rows.partners.shape[-1]))
        return WeightChange(Status.INFEASIBLE, nothing, impossible / impossible.sum(), np.inf, np.inf, np.inf)
    working = np.flatnonzero(rows.asked)
    if len(working) > MOST_ASKED:
        raise ProblemError(f"targets: expected at most {MOST_ASKED:,} pairs of tokens to compare, got {len(working):,}")
    multipliers = np.zeros(len(rows))
    with threads_for(len(working) ** 2 * rows.inputs.shape[-1]):
        for _ in range(MOST_ROUNDS):
            some = rows[working]
            multipliers[:] = 0.0
            multipliers[working] = found = solve_unit_rows(some, some.gram())
            weights = rows.adjoint(multipliers)
            short = rows.right - rows.apply(weights)
            short[working] = 0.0
            missed = np.flatnonzero(rows.there & (short > MISSED))
            if len(missed) == 0:
                break
            # the worst row of each query; rows without a multiplier leave the working set, unless h > 0
            order = missed[np.argsort(-short[missed])]
            _, first = np.unique(rows.query[order], return_index=True)
            stays = working[(found > 0) | rows.asked[working]]
            working = np.concatenate([stays, order[np.sort(first)][:MOST_ADDED]])
    return WeightChange.of(rows, multipliers)


def solve_unit_rows(rows: EditRows, gram: Float[np.ndarray, "m m"]) -> Multipliers:
    """Multipliers of the unit rows, none of which is zero: of the optimum, or of a proof that there is no change."""
    start = np.zeros(len(rows))
    if not rows.asked.any():
        return start
    found = block_pivoting(gram, rows.right)
    if found is not None and WeightChange.of(rows, found).gap <= SETTLED:
        return np.asarray(found)
    # pivoting fails if rows depend on each other, as those of queries that are nearly equal
    found = np.maximum(DualSearch(rows, SETTLED / 100, MOST_PRODUCTS).by_pivoting(start, rows.asked), 0.0)
    if WeightChange.of(rows, found).status == Status.OPTIMAL:
        return np.asarray(found)
    ray, _ = DualSearch(rows, SETTLED, MOST_PRODUCTS).ray(start, MOST_PRODUCTS, by_pivoting=True)
    ray = np.maximum(ray, 0.0)
    return np.asarray(ray if WeightChange.of(rows, ray).status == Status.INFEASIBLE else found)
