"""The dual of one large problem, min ½‖A'μ‖² − h'μ over μ ≥ 0: when a search for it ends, and the best bounds so far.

On unit rows A, W = A'μ. Scaled to margins of 1, it bounds the least norm from above, and h'μ/‖A'μ‖ from below. All
methods use products with K = A A' alone, or small blocks of K: projected gradient steps with conjugate gradients, and
proximal pivoting.

If no W exists, the dual has no minimum. So as long as no margin is positive, the search for W alternates with a search
for a ray; each turn is as long as all turns before it together. The ray minimises ½‖A'u‖² + ½σ(a'u − 1)² over u ≥ 0,
with a = 1 on the rows that require a margin. The minimum is 0 exactly if u is a Farkas certificate; otherwise W = A'u
has positive margins.
"""

import math

import numpy as np

from attsvm.svm.certificate import FARKAS_BOUND
from attsvm.svm.constraints.constraints import TokenMask, TokenValues
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.frobenius.projected_gradient import BoundedProgram, ProjectedGradient, Stopped
from attsvm.svm.frobenius.proximal_pivoting import Positions, ProximalPivoting
from attsvm.svm.loop import Report
from attsvm.svm.tolerances import ROUNDED

POLISHED = 1e-11
"""Below this gap, multiplied by the value, a search without progress may end."""

FIRST_TURN = 200
"""Number of products with K within which most feasible problems reach a positive margin."""

PATIENCE, LAST_PATIENCE, PIVOTS = 3_000, 50, 6
"""The search ends if this many products have not halved the gap; for gaps below ``POLISHED``, if the second number or
a quarter of all products so far have not, or the third number in pivoting, each of whose steps has a factorisation."""

SURELY_FEASIBLE, NEARLY_OPTIMAL = 0.9, 1e-8
"""Gaps below which no search for a ray is needed; the second one if scaling cannot repair all violated rows."""


class DualSearch:
    """The search for the optimum of the dual, and for a ray; steps, products with K, are counted over all of it.

    ``target``: the gap at which it ends. ``max_steps``: largest number of products. ``report``: called as
    ``report(step, gap)``; a true return value ends it. ``upper``: upper bounds of the multipliers, if there are any.
    """

    feasible = False
    """Whether weights with positive margins were found. There is no ray then."""

    def __init__(
        self,
        products: DualProducts,
        target: float,
        max_steps: int,
        report: Report | None = None,
        upper: TokenValues | None = None,
    ) -> None:
        self.products, self.target, self.limit, self.report, self.upper = products, target, max_steps, report, upper
        self.rigid = products.has_equalities or bool((products.bounded & ~products.asked).any())
        self.reached = self.ended = self.stopped = (
            False  # the target; without progress, or by the report; by the report
        )
        self.gap, self.steps = math.inf, 0
        self._smallest, self._halved_at, self._turn_ends = math.inf, 0, FIRST_TURN
        self._pivoting, self._best = False, math.inf
        self._best_point: TokenValues | None = None

    @property
    def running(self) -> bool:
        """Tell whether more steps may help."""
        return not (self.reached or self.ended) and self.steps < self.limit

    def by_products(
        self, start: TokenValues, most_steps: int, face_first: bool = False
    ) -> tuple[TokenValues, TokenValues | None]:
        """Return the multipliers that projected gradients reach, and a ray if one is found.

        ``face_first``: the positive entries of ``start`` are probably the right ones.
        """
        point, ray, end = start, None, min(self.limit, self.steps + most_steps)
        while True:
            program = self._program(end)
            point = ProjectedGradient(program, self.products.eigenvalue).solve(point, face_first)
            self.steps += program.steps
            if self.ended or self.feasible or self.steps >= end:
                return point, None
            ray, is_proof = self.ray(point if ray is None else ray, end)
            if is_proof or self.ended or self.steps >= end:
                return point, ray if is_proof else None
            self._turn_ends, face_first = 2 * self.steps, True

    def by_pivoting_or_ray(self, start: TokenValues) -> tuple[TokenValues, TokenValues | None]:
        """Return the multipliers that proximal pivoting reaches, and a ray if one is found."""
        if not self.feasible:
            ray, is_proof = self.ray(np.zeros(start.shape), self.limit, by_pivoting=True)
            if is_proof:
                return start, ray
        return self.by_pivoting(start, start > 0 if start.any() else self.products.asked), None

    def by_pivoting(self, start: TokenValues, inside: TokenMask, allowed: TokenValues | float = ROUNDED) -> TokenValues:
        """Return the multipliers with the smallest gap that proximal pivoting reaches.

        ``inside``, ``allowed``: as in :class:`ProximalPivoting`.
        """
        self._turn_ends, self._pivoting, self._best, self._best_point = self.limit, True, math.inf, None
        program = self._program(self.limit)
        point = ProximalPivoting(program, self.products.block, allowed).solve(start, inside)
        self.steps += program.steps
        self._pivoting = False
        return point if self._best_point is None else self._best_point

    def ray(self, start: TokenValues, end: int, by_pivoting: bool = False) -> tuple[TokenValues, bool]:
        """Return multipliers u that may come near a ray, and whether they prove that there are no weights."""
        products = self.products
        # ½‖A'u‖² + ½σ(a'u − 1)² has the matrix K + σaa' and the linear term σa
        asked = products.asked.astype(np.float64)
        weight = self.products.eigenvalue / float(asked.sum())  # σ
        proof = False

        def times(multipliers: TokenValues) -> TokenValues:
            image = products.times(multipliers)
            image += asked * (weight * float(np.vdot(asked, multipliers)))
            return image

        def block(rows: Positions, columns: Positions) -> np.ndarray:
            return products.block(rows, columns) + weight * np.outer(asked.flat[rows], asked.flat[columns])

        def check(steps: int, ray: TokenValues, image: TokenValues) -> bool:
            nonlocal proof
            total, pull = float(np.vdot(asked, ray)), float(np.linalg.norm(products.adjoint(ray)))
            proof = total > 2 * FARKAS_BOUND * pull and not (ray < 0).any(where=products.bounded)
            # K u without the second term: the margins of W = A'u
            margins = image - asked * (weight * total)
            smallest = float(margins.min(where=products.bounded, initial=np.inf))
            # these weights have positive margins and are shorter than the bound, so there is no ray
            self.feasible = not products.has_equalities and pull < 0.1 * FARKAS_BOUND * smallest
            self._tell(self.steps + steps)
            if self.feasible or self.ended or steps > self._turn_ends or (proof and not by_pivoting):
                raise Stopped
            return proof

        program = BoundedProgram(times, weight * asked, products.bounded, products.there, check, end - self.steps)
        if by_pivoting:
            self._turn_ends = self.limit
            ray = ProximalPivoting(program, block, ROUNDED).solve(start, products.asked)
        else:
            # the second term has an eigenvalue as large as the first
            scale = float(np.vdot(asked, start)) or 1.0
            ray = ProjectedGradient(program, 2 * self.products.eigenvalue).solve(start / scale)
        self.steps += program.steps
        return ray, proof

    def measure(self, point: TokenValues, image: TokenValues) -> tuple[float, float]:
        """Compute the gap between weights and multipliers of a point, and the value; ∞ if one is infeasible."""
        products = self.products
        square = float(np.vdot(point, image))
        if not square > 0 or (point < 0).any(where=products.bounded):
            return math.inf, 0.0
        value = math.sqrt(square)
        slack = image - products.right
        # on unit rows, the smallest margin of W = A'μ relative to what is required is 1 + short
        short = float(np.divide(slack, products.right, out=np.zeros(slack.shape), where=products.asked).min())
        if not short > -1:
            return math.inf, value
        lacking = -float(slack.min(where=products.there & ~products.asked, initial=0.0))
        if products.has_equalities:
            equality = products.there & ~products.bounded
            lacking = max(lacking, float(np.abs(slack).max(where=equality, initial=0.0)))
        # 1 − lower/upper with the bounds h'μ/‖A'μ‖ and ‖A'μ‖/(1 + short) of the least norm
        return abs(1 - float(np.vdot(point, products.right)) * (1 + short) / square) + lacking / value, value

    def _program(self, end: int) -> BoundedProgram:
        products = self.products
        return BoundedProgram(
            products.times,
            products.right,
            products.bounded,
            products.there,
            self._check,
            end - self.steps,
            self.upper,
        )

    def _check(self, steps: int, point: TokenValues, image: TokenValues) -> bool:
        """Tell whether the gap is small enough; stop the search if there is no more progress."""
        total = self.steps + steps
        self.gap, value = self.measure(point, image)
        if self._pivoting and self.gap < self._best:
            self._best, self._best_point = self.gap, point
        # progress: the gap has been halved
        if self.gap <= 0.5 * self._smallest:
            self._smallest, self._halved_at = self.gap, total
        self.feasible = self.feasible or self._smallest < (NEARLY_OPTIMAL if self.rigid else SURELY_FEASIBLE)
        self._tell(total)
        patience = PATIENCE
        if self.gap <= POLISHED * max(1.0, value):
            patience = PIVOTS if self._pivoting else max(LAST_PATIENCE, total // 4)
        self.ended |= self.feasible and total - self._halved_at > patience
        self.reached = self.gap <= self.target * max(1.0, value)
        if self.ended or not (self.feasible or total <= self._turn_ends):
            raise Stopped
        return self.reached

    def _tell(self, steps: int) -> None:
        """Report the step, and stop if the callback returned True."""
        self.stopped = self.report is not None and self.report(steps, self.gap)
        self.ended |= self.stopped
