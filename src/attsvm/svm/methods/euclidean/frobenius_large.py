"""Least Frobenius norm of one large problem, using the data only through products with A and A*.

On unit rows, the dual min ½‖A'μ‖² − h'μ over μ ≥ 0 (free on equalities) is a quadratic program under bounds, and
W = A'μ. If no W exists, the dual has no minimum. So as long as no margin is positive, the search for W alternates with
a search for a ray; each turn is as long as all turns before it together. The ray minimises ½‖A'u‖² + ½σ(a'u − 1)² over
u ≥ 0, with a = 1 on the rows that require a margin. The minimum is 0 exactly if u is a Farkas certificate; otherwise
W = A'u has positive margins.
"""

import math

import numpy as np

from attsvm.svm.certificate import FARKAS_BOUND, unattainable
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.methods.candidate import Candidate, Settings
from attsvm.svm.methods.euclidean.bound_program import BoundProgram, Check, Product, Stopped
from attsvm.svm.threads import threads_for

GOOD_GAP = 2e-15
"""The target of the gap, multiplied by the value if that is above 1: about the smallest gap that rounding allows."""

POLISHED = 1e-11
"""Below this gap, multiplied by the value, a search without progress may end."""

FIRST_TURN = 200
"""Number of products with K within which most feasible problems reach a positive margin."""

MAX_STEPS = 50_000
"""Largest number of products with K, if the caller sets no limit."""

PATIENCE = 3_000
"""The search ends if the gap has not been halved within this many products."""

LAST_PATIENCE = 50
"""The same for gaps below ``POLISHED``, or a quarter of all steps so far if that is more."""

SURELY_FEASIBLE, NEARLY_OPTIMAL = 0.9, 1e-8
"""Gaps below which no search for a ray is needed; the second one if scaling cannot repair all violated rows."""

WARM_SLACK = 1e-3
"""With initial weights, the search starts with the rows whose relative slack is below this."""

METHOD = "projected-gradient"
"""Name of the method in ``stats``."""


def solve_large(constraints: Constraints, settings: Settings, why: str) -> Candidate:
    """The weights of least Frobenius norm, or Farkas multipliers, of one problem.

    ``constraints``: without leading axes. ``settings``: a step is one product with A A*. The multipliers of a warm
    start are used; if it has only weights, the search starts with the rows on which they are tight. ``why``: why the
    method was chosen; part of the candidate.
    """
    products = DualProducts(constraints)
    search = _Search(products, settings)
    with threads_for(products.multiplications):
        weights, multipliers, is_ray = search.run()
    return Candidate(weights, multipliers, np.asarray(is_ray), np.asarray(search.steps), METHOD, why)


class _Search:
    """The searches for the optimum of the dual and for a ray; steps are counted over both."""

    def __init__(self, products: DualProducts, settings: Settings) -> None:
        self.products, self.settings = products, settings
        self.rigid = products.has_equalities or bool((products.bounded & ~products.asked).any())
        self.limit = settings.max_steps or MAX_STEPS
        self.steps = 0
        self.turn_ends = FIRST_TURN
        self.stopped = self.feasible = False
        self.gap = self.best = math.inf
        self.best_at = 0

    def run(self) -> tuple[Weights, TokenValues, bool]:
        """Weights, multipliers of the original rows, and whether the multipliers are a ray."""
        products, constraints = self.products, self.products.constraints
        if not products.asked.any() or unattainable(constraints).any():
            return np.zeros(constraints.weights_shape), np.zeros(constraints.right.shape), False
        self.eigenvalue = products.largest_eigenvalue()
        point, face_first = self._start()
        ray = None
        while True:
            program = self._program(products.times, products.right, self._check_weights)
            point, _ = program.solve(point, face_first)
            self.steps += program.steps
            if self.stopped or self.feasible or self.steps >= self.limit:
                break
            ray, is_proof = self._ray(point if ray is None else ray)
            if is_proof:
                return np.zeros(constraints.weights_shape), products.of_original_rows(ray), True
            if self.stopped or self.steps >= self.limit:
                break
            self.turn_ends, face_first = 2 * self.steps, True
        return products.adjoint(point), products.of_original_rows(point), False

    def _program(self, times: Product, linear: TokenValues, check: Check) -> BoundProgram:
        products = self.products
        return BoundProgram(
            times, linear, products.bounded, products.there, self.eigenvalue, check, self.limit - self.steps
        )

    def _start(self) -> tuple[TokenValues, bool]:
        """Initial multipliers at their best scale, and whether their positive entries are probably the right ones."""
        products, settings, right = self.products, self.settings, self.products.right
        if settings.warm_multipliers is not None:
            guess = products.of_unit_rows(settings.warm_multipliers.reshape(right.shape))
        elif settings.warm_start is not None:
            margins = products.apply(settings.warm_start)
            smallest = np.divide(margins, right, out=np.full(right.shape, np.inf), where=products.asked).min()
            tight = products.bounded & (margins <= smallest * (1 + WARM_SLACK) * right)
            guess = np.where(tight, right, 0.0) if smallest > 0 else right
        else:
            return right / self.eigenvalue, False
        curvature, gain = float(np.vdot(guess, products.times(guess))), float(np.vdot(guess, right))
        if not (curvature > 0 and gain > 0):
            return right / self.eigenvalue, False
        return guess * (gain / curvature), True

    def _check_weights(self, steps: int, point: TokenValues, image: TokenValues) -> bool:
        """Whether the gap is as small as rounding allows. Stops the search if there is no more progress."""
        products, total = self.products, self.steps + steps
        square, gain = float(np.vdot(point, image)), float(np.vdot(point, products.right))
        value = math.sqrt(max(square, 0.0))
        slack = image - products.right
        short = float(np.divide(slack, products.right, out=np.zeros(slack.shape), where=products.asked).min())
        self.gap = math.inf
        if short > -1 and square > 0:
            lacking = -float(slack.min(where=products.there & ~products.asked, initial=0.0))
            if products.has_equalities:
                lacking = max(lacking, float(np.abs(slack).max(where=products.there & ~products.bounded, initial=0.0)))
            self.gap = abs(1 - gain * (1 + short) / square) + lacking / value
        if self.gap <= 0.5 * self.best:
            self.best, self.best_at = self.gap, total
        self.feasible = self.best < (NEARLY_OPTIMAL if self.rigid else SURELY_FEASIBLE)
        self._tell(total)
        patience = max(LAST_PATIENCE, total // 4) if self.gap <= POLISHED * max(1.0, value) else PATIENCE
        if self.stopped or (total - self.best_at > patience if self.feasible else total > self.turn_ends):
            raise Stopped
        return self.gap <= GOOD_GAP * max(1.0, value)

    def _tell(self, steps: int) -> None:
        """Report the step, and stop if the callback returned True."""
        self.stopped = self.settings.report is not None and self.settings.report(steps, self.gap)

    def _ray(self, start: TokenValues) -> tuple[TokenValues, bool]:
        """Multipliers that may come near a ray, and whether they prove that there are no weights."""
        products = self.products
        asked = products.asked.astype(np.float64)
        weight = self.eigenvalue / float(asked.sum())
        proof = False

        def times(multipliers: TokenValues) -> TokenValues:
            image = products.times(multipliers)
            image += asked * (weight * float(np.vdot(asked, multipliers)))
            return image

        def check(steps: int, ray: TokenValues, image: TokenValues) -> bool:
            nonlocal proof
            total, pull = float(np.vdot(asked, ray)), float(np.linalg.norm(products.adjoint(ray)))
            proof = total > 2 * FARKAS_BOUND * pull
            margins = image - asked * (weight * total)
            smallest = float(margins.min(where=products.bounded, initial=np.inf))
            # these weights have positive margins and are shorter than the bound, so there is no ray
            self.feasible = not products.has_equalities and pull < 0.1 * FARKAS_BOUND * smallest
            self._tell(self.steps + steps)
            if proof or self.feasible or self.stopped or steps > self.turn_ends:
                raise Stopped
            return False

        program = self._program(times, weight * asked, check)
        program.eigenvalue *= 2  # the second term has an eigenvalue as large as the first
        ray, _ = program.solve(start / (float(np.vdot(asked, start)) or 1.0))
        self.steps += program.steps
        return ray, proof
