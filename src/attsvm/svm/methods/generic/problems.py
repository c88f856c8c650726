"""One problem for the generic methods: unit rows in the span of the data, and a norm."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.norms import Norm
from attsvm.svm.certificate import RIGID
from attsvm.svm.constraints.rows import PairRows
from attsvm.svm.loop import Iterates, Iteration, Point, Report, Stop, iterate
from attsvm.svm.tolerances import DEPENDENT

Matrix = Float[np.ndarray, "d_k d_q"]
Matrices = Float[np.ndarray, "N d_k d_q"]
Vector = Float[np.ndarray, " m"]

REPAIRS = 4
"""How often weights are projected on the rows that they violate."""


DIFFERENCE = 1e-6
"""Length of the differences of a prox, relative to its argument."""


def slope_of_prox(
    norm: Norm, at: Matrix, step: float, length: float = DIFFERENCE
) -> tuple[Float[np.ndarray, "D D"], float]:
    """Return the Jacobian of prox by central differences, and how far the differences on both sides are apart."""
    h = length * (float(np.max(np.abs(at))) or 1.0)
    moves = h * np.eye(at.size).reshape(at.size, *at.shape)
    centre = norm.prox(at, step)
    above, below = norm.proxes(at + moves, step), norm.proxes(at - moves, step)
    kink = float(np.max(np.abs((above - centre) - (centre - below)))) / h
    jacobian = ((above - below) / (2 * h)).reshape(at.size, at.size)
    return 0.5 * (jacobian + jacobian.T), kink


@dataclass(frozen=True, eq=False)
class Program:
    """Minimise N(W) subject to A(W) ≥ b, with equality where b belongs to an equality."""

    norm: Norm
    rows: PairRows  # rows of unit norm, with a batch axis of length 1
    right: Vector  # shape (m,), b. A margin is required where it is positive.
    equality: Bool[np.ndarray, " m"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.left.shape[-1], self.rows.queries.shape[-1]

    @cached_property
    def asked(self) -> Bool[np.ndarray, " m"]:
        """Return where a margin is required."""
        return self.right > 0

    @cached_property
    def has_rigid(self) -> bool:
        """Return whether there are rows that scaling cannot repair: equalities, and rows with right side 0 or less."""
        return not self.asked.all()

    @cached_property
    def gram(self) -> Float[np.ndarray, "m m"]:
        return self.rows.gram()

    @cached_property
    def _blocks(self) -> tuple[Float[np.ndarray, "U slots d_k"], Int[np.ndarray, " m"]]:
        """Return the left factors of each query, padded with zeros, and the place of each row among the slots."""
        query_of, first = self.rows.query_of, self.rows.first
        slot = np.arange(len(query_of)) - first[query_of]
        blocks = np.zeros((len(first), int(slot.max()) + 1, self.shape[0]))
        blocks[query_of, slot] = self.rows.left[0]
        return blocks, query_of * blocks.shape[1] + slot

    def apply(self, weights: Matrix) -> Vector:
        blocks, place = self._blocks
        mapped = self.rows.queries[0] @ weights.T
        return np.asarray((blocks @ mapped[..., None]).reshape(-1)[place])

    def apply_to_each(self, weights: Matrices) -> Float[np.ndarray, "N m"]:
        """Compute A(W) of several W, by one product for each query."""
        blocks, place = self._blocks
        mapped = self.rows.queries[0] @ weights.mT
        slots = (mapped.swapaxes(0, 1) @ blocks.mT).swapaxes(0, 1)
        return np.asarray(slots.reshape(len(weights), -1)[:, place])

    def adjoint(self, multipliers: Vector) -> Matrix:
        blocks, place = self._blocks
        slots = np.zeros((len(blocks), 1, blocks.shape[1]))
        slots.reshape(-1)[place] = multipliers
        return self.rows.in_blocks(np.asarray((slots @ blocks)[:, 0].T @ self.rows.queries[0]))

    def row_matrices(self, chosen: np.ndarray) -> Matrices:
        return self.rows.in_blocks(
            self.rows.left[0, chosen][:, :, None] * self.rows.queries[0, self.rows.query_of[chosen]][:, None, :]
        )

    def value(self, weights: Matrix) -> float:
        return float(self.norm.values(weights))

    def feasible(self, multipliers: Vector) -> Vector:
        """Clip multipliers at 0, except those of equalities."""
        return np.where(self.equality, multipliers, np.maximum(multipliers, 0.0))

    def repaired(self, weights: Matrix) -> Matrix:
        """Project the weights on the equalities, and on the rows with right side 0 or less that they violate."""
        if not self.has_rigid:
            return weights
        held = self.equality
        for _ in range(REPAIRS):
            image = self.apply(weights)
            # the right sides of these weights before they are divided by their margin
            short = self.right * max(0.0, self._smallest(image)) - image
            held = held | (~self.asked & (short > 0))
            if not held.any():
                break
            # the least change A*(move) of W with A(W) = b on the held rows
            move = np.zeros(len(held))
            move[held] = np.linalg.lstsq(self.gram[np.ix_(held, held)], short[held], rcond=DEPENDENT)[0]
            weights = weights + self.adjoint(move)
        return weights

    def margin(self, weights: Matrix) -> float:
        """Return the smallest margin over its right side; −∞ where a row is violated that scaling cannot repair."""
        image = self.apply(weights)
        margin = self._smallest(image)
        if self.has_rigid:
            short = self.right * max(0.0, margin) - image
            lacking = np.where(self.equality, np.abs(image), np.where(self.asked, 0.0, short)).max()
            if not lacking <= RIGID * np.linalg.norm(weights):
                return -np.inf
        return margin

    def _smallest(self, image: Vector) -> float:
        return float((image[self.asked] / self.right[self.asked]).min())


class Bounds:
    """The best weights and the best multipliers so far. Each side is improved by itself.

    ``weights``, ``multipliers``: the first pair.

    ``weights``: with a smallest margin of 1, if any weights with a positive margin have been seen. ``multipliers``:
    shape (m,), with N*(A*(λ)) = 1, if any with a positive bound have been seen. ``upper``, ``lower``: bounds on the
    optimum.
    """

    def __init__(self, program: Program, weights: Matrix, multipliers: Vector) -> None:
        self.program = program
        self.weights, self.multipliers = weights, multipliers
        self.upper, self.lower = np.inf, 0.0
        self.see(weights, multipliers)

    @property
    def gap(self) -> float:
        return max(0.0, 1.0 - self.lower / self.upper)

    def see(self, weights: Matrix, multipliers: Vector) -> float:
        """Keep either side if it improves its bound, and return the gap."""
        self.see_weights(weights)
        multipliers = self.program.feasible(multipliers)
        # ⟨A*(λ), W⟩ ≤ N*(A*(λ)) N(W) may show already that N*(A*(λ)) is too large for a better lower bound
        pairing = float(self.program.apply(self.weights) @ multipliers)
        if not pairing > 0 or 1.0 - float(self.program.right @ multipliers) / pairing <= self.gap:
            self.see_multipliers(multipliers)
        return self.gap

    def see_weights(self, weights: Matrix) -> None:
        """Keep the weights if they improve the upper bound."""
        weights = self.program.repaired(weights)
        margin = self.program.margin(weights)
        if 0 < margin < np.inf:
            # W over its smallest margin is feasible, with the value N(W)/margin
            upper = self.program.value(weights) / margin
            if upper < self.upper:
                self.upper, self.weights = upper, weights / margin

    def see_multipliers(self, multipliers: Vector) -> None:
        """Keep the multipliers if they improve the lower bound."""
        multipliers = self.program.feasible(multipliers)
        size = float(self.program.norm.dual.values(self.program.adjoint(multipliers)))
        if 0 < size < np.inf:
            # b'λ ≤ ⟨A*(λ), W⟩ ≤ N*(A*(λ)) N(W) for every feasible W
            lower = float(self.program.right @ multipliers) / size
            if lower > self.lower:
                self.lower, self.multipliers = lower, multipliers / size


class Improvement(Iteration):
    """An iteration that improves the bounds of one program."""

    bounds: Bounds

    @abstractmethod
    def see(self) -> bool:
        """Improve the bounds by the current iterate, and return whether the iteration can go on."""

    def evaluate(self) -> Iterates:
        """Return the best weights and multipliers so far."""
        alive = self.see()
        best = self.bounds
        return Iterates(best.weights[None], best.multipliers[None], np.array([best.gap]), np.array([alive]))

    def run(self, stop: Stop, report: Report) -> int:
        """Iterate, and return the number of steps."""
        start = Point.unsolved(self.bounds.weights[None], self.bounds.multipliers[None])
        return int(iterate(self, start, stop, report).steps[0])
