"""The dual of one large problem, min ½‖A'μ‖² − h'μ over μ ≥ 0: when a search for it ends, and the best bounds so far.

On unit rows A, W = A'μ. Scaled to margins of 1, it bounds the least norm from above, and h'μ/‖A'μ‖ from below. All
methods use products with K = A A' alone, or small blocks of K: projected gradient steps with conjugate gradients, and
proximal pivoting.

If no W exists, the dual has no minimum. So as long as no margin is positive, the search for W alternates with a search
for a ray; each turn is as long as all turns before it together. The ray minimises ½‖A'u‖² + ½σ(a'u − 1)² over u ≥ 0,
with a = 1 on the rows that require a margin, or a = h if a right side is negative. The minimum is 0 exactly if u is a
Farkas certificate; otherwise, for a = 1, W = A'u has positive margins.
"""

import math
from collections.abc import Callable

import numpy as np

from attsvm.svm.certificate import FARKAS_BOUND
from attsvm.svm.constraints.constraints import TokenMask, TokenValues
from attsvm.svm.constraints.dual_products import UnitRows
from attsvm.svm.loop import Iterates, Iteration, Point, Report, Stop, iterate
from attsvm.svm.methods.frobenius.projected_gradient import BoundedProgram, Points, ProjectedGradient, Stopped, Vector
from attsvm.svm.methods.frobenius.proximal_pivoting import Positions, ProximalPivoting
from attsvm.svm.tolerances import ROUNDED

FIRST_TURN = 200
"""Number of products with K within which most feasible problems reach a positive margin."""

STOP = Stop(target=0.0, patience=6, small=1e-11, far_patience=300)
"""Of gaps over the value, if that is above 1. An evaluation follows after at most ten products, or a factorisation."""

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
        products: UnitRows,
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
        self.gap, self.steps, self._turn_ends = math.inf, 0, FIRST_TURN

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
            method = ProjectedGradient(program, self.products.eigenvalue)
            point, _ = self.descend(program, method.points(point, face_first), point)
            if self.ended or self.feasible or self.steps >= end:
                return point, None
            ray, is_proof = self.ray(point if ray is None else ray, end)
            if is_proof or self.ended or self.steps >= end:
                return point, ray if is_proof else None
            self._turn_ends, face_first = 2 * self.steps, True

    def by_pivoting_or_ray(self, start: TokenValues) -> tuple[TokenValues, TokenValues | None]:
        """Return the multipliers that proximal pivoting reaches, and a ray if one is found."""
        best = self.by_pivoting(start, start > 0 if start.any() else self.products.asked)
        # the optimum comes first: it takes long to see that there is no ray, and a feasible problem has none
        if self.feasible or not self.running:
            return best, None
        ray, is_proof = self.ray(np.zeros(start.shape), self.limit, by_pivoting=True)
        return best, ray if is_proof else None

    def by_pivoting(self, start: TokenValues, inside: TokenMask, allowed: TokenValues | float = ROUNDED) -> TokenValues:
        """Return the multipliers with the smallest gap that proximal pivoting reaches.

        ``inside``, ``allowed``: as in :class:`ProximalPivoting`.
        """
        self._turn_ends = self.limit
        program = self._program(self.limit)
        method = ProximalPivoting(program, self.products.block, allowed)
        _, best = self.descend(program, method.points(start, inside), start)
        return best

    def descend(self, program: BoundedProgram, points: Points, start: TokenValues) -> tuple[TokenValues, TokenValues]:
        """Return the last point of a method, and that with the smallest gap; the last one if no gap is finite."""

        def evaluate(point: TokenValues, image: TokenValues) -> float:
            self.gap, value = self.measure(point, image)
            gap = self.gap / max(1.0, value)
            self.feasible = self.feasible or self.gap < (NEARLY_OPTIMAL if self.rigid else SURELY_FEASIBLE)
            return gap

        def report(step: int, gap: float) -> bool:
            steps = self.steps + program.steps
            return self._stopped_by_callback(steps) or self._turn_is_over(steps)

        method = _DualDescent(program, points, evaluate, start)
        found = iterate(method, method.start(), STOP._replace(target=self.target, max_steps=self.limit), report)
        self.steps += program.steps
        self.reached = bool(found.gap[0] <= self.target)
        going = method.ended or not self.feasible  # another method, or a search for a ray, may go on
        self.ended = self.stopped or not (self.reached or going or self.steps >= self.limit)
        return method.point, found.multipliers[0] if np.isfinite(found.gap[0]) else method.point

    def ray(self, start: TokenValues, end: int, by_pivoting: bool = False) -> tuple[TokenValues, bool]:
        """Return multipliers u that may come near a ray, and whether they prove that there are no weights."""
        products = self.products
        # ½‖A'u‖² + ½σ(a'u − 1)² has the matrix K + σaa' and the linear term σa
        asked = products.right if products.has_negative else products.asked.astype(np.float64)
        weight = self.products.eigenvalue / float(np.vdot(asked, asked))  # σ

        def times(multipliers: TokenValues) -> TokenValues:
            image = products.times(multipliers)
            image += asked * (weight * float(np.vdot(asked, multipliers)))
            return image

        def block(rows: Positions, columns: Positions) -> np.ndarray:
            return products.block(rows, columns) + weight * np.outer(asked.flat[rows], asked.flat[columns])

        def evaluate(ray: TokenValues, image: TokenValues) -> float:
            total, pull = float(np.vdot(asked, ray)), float(np.linalg.norm(products.adjoint(ray)))
            # K u without the second term: the margins of W = A'u
            margins = image - asked * (weight * total)
            smallest = float(margins.min(where=products.bounded, initial=np.inf))
            # these weights have positive margins and are shorter than the bound, so there is no ray
            self.feasible = not products.has_equalities and pull < 0.1 * FARKAS_BOUND * smallest
            return pull / total if total > 0 and not (ray < 0).any(where=products.bounded) else math.inf

        def report(step: int, gap: float) -> bool:
            over = not by_pivoting and program.steps > self._turn_ends
            return self._stopped_by_callback(self.steps + program.steps) or self.feasible or over

        program = BoundedProgram(times, weight * asked, products.bounded, products.there, end - self.steps)
        if by_pivoting:
            points = ProximalPivoting(program, block, ROUNDED).points(start, products.asked)
        else:
            # the second term has an eigenvalue as large as the first
            total = float(np.vdot(asked, start))
            start = start / (total if total > 0 else 1.0)
            points = ProjectedGradient(program, 2 * self.products.eigenvalue).points(start)
        method, proof = _DualDescent(program, points, evaluate, start), 0.5 / FARKAS_BOUND
        found = iterate(method, method.start(), Stop(proof, self.limit, small=0.0), report)
        self.steps += program.steps
        is_proof = bool(found.gap[0] <= proof)
        return found.multipliers[0] if is_proof else method.point, is_proof

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
        # after scaling, the others need h (1 + short)
        rest = slack - short * products.right
        lacking = -float(rest.min(where=products.there & ~products.asked, initial=0.0))
        if products.has_equalities:
            equality = products.there & ~products.bounded
            lacking = max(lacking, float(np.abs(slack).max(where=equality, initial=0.0)))
        # 1 − lower/upper with the bounds h'μ/‖A'μ‖ and ‖A'μ‖/(1 + short) of the least norm
        return abs(1 - float(np.vdot(point, products.right)) * (1 + short) / square) + lacking / value, value

    def _program(self, end: int) -> BoundedProgram:
        products = self.products
        return BoundedProgram(
            products.times, products.right, products.bounded, products.there, end - self.steps, self.upper
        )

    def _turn_is_over(self, steps: int) -> bool:
        """Tell whether it is time to search for a ray, or for weights."""
        return not self.feasible and steps > self._turn_ends

    def _stopped_by_callback(self, steps: int) -> bool:
        """Report the step; return whether the callback ends the search."""
        self.stopped = self.report is not None and self.report(steps, self.gap)
        self.ended |= self.stopped
        return self.stopped


class _DualDescent(Iteration):
    """The points of a method for one program, as multipliers; their weights A'μ are not computed."""

    def __init__(
        self, program: BoundedProgram, points: Points, gap_at: Callable[[Vector, Vector], float], start: Vector
    ) -> None:
        self.program, self.points, self.gap_at, self.ended = program, points, gap_at, False
        self.point, self.image = start, np.zeros(start.shape)
        self.advance()

    def start(self) -> Point:
        return Point.unsolved(np.zeros((1, 0)), self.point[None])

    def evaluate(self) -> Iterates:
        gap = np.array([self.gap_at(self.point, self.image)])
        return Iterates(np.zeros((1, 0)), self.point[None], gap, np.array([not self.ended]))

    def advance(self) -> int:
        before = self.program.steps
        try:
            self.point, self.image = next(self.points)
        except (Stopped, StopIteration):
            self.ended = True
        return self.program.steps - before
