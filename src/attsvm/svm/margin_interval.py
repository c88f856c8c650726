"""The margin of given weights, divided by the best margin for the same selection, as a certified interval."""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.selection import selection_sets
from attsvm.svm.certificate import FROBENIUS, Certified, certify
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.constraints.gram_products import GramProducts, Grams
from attsvm.svm.head_problem import HeadProblem
from attsvm.svm.methods.euclidean.bound_program import BoundProgram, Stopped
from attsvm.svm.methods.euclidean.pivoting_program import PivotingProgram
from attsvm.svm.solve import solve_svm

MAX_STEPS = 20_000
"""Largest number of products with the constraints if no limit is given."""

PATIENCE = 3_000
"""A solve ends after this many products without a narrower interval."""

FIRST_STEPS = 120
"""Products with the constraints before pivoting. With fewer, pivoting needs more exchanges, which take longer."""

LARGEST_SHARE = 0.2
"""Margins that are short by this part of the gap do not keep pivoting from going on."""

ROUNDING = 0.9
"""Part of the required gap at which float32 stops, so that float64 can confirm it."""


@dataclass(frozen=True, eq=False)
class MarginInterval:
    """A head's smallest margin on its tokens, over the best one."""

    # ``optimal`` if the interval is at most as wide as required; ``inaccurate`` if it is wider, or was not found;
    # ``infeasible`` if no matrix keeps the selection. If there are no constraints, because every query may attend to
    # only one token, the status is ``optimal`` and there is no ratio.
    status: Status
    # min (k_α − k_t)'W z over all constraints, of W/‖W‖_F. The selection is the argmax of the head's own logits, so it
    # is not negative; it is 0 where two tokens tie.
    margin: float | None
    norm: float  # ‖W‖_F
    # lower, upper: bounds on the ratio: ``margin`` times the least norm of a matrix with margins of 1, which the dual
    # bounds from below and the primal from above
    lower: float | None
    upper: float | None
    # constraints, duplicates: pairs of a query and a token that it drops; and how many of them are left out because the
    # token is an exact duplicate of the selected one
    constraints: int
    duplicates: int
    support: int  # constraints with a positive multiplier: the support tokens, as far as the solve went
    steps: int  # steps of the solve

    @property
    def width(self) -> float | None:
        """Width of the interval, relative to its upper end; 0 if the upper end is 0."""
        if self.lower is None or self.upper is None:
            return None
        return (self.upper - self.lower) / self.upper if self.upper else 0.0

    def for_gap(self, gap: float) -> "MarginInterval":
        """The same interval with its status for another required width."""
        if self.lower is None or self.upper is None:
            return self
        optimal = self.upper - self.lower <= gap * self.upper
        return replace(self, status=Status.OPTIMAL if optimal else Status.INACCURATE)


def margin_interval(
    head: HeadProblem,
    allowed: Bool[np.ndarray, "n Q T"],
    selected: Int[np.ndarray, "n Q"],
    gap: float = 1e-2,
    max_steps: int | None = None,
    grams: Grams | None = None,
) -> tuple[MarginInterval, Float[np.ndarray, "n Q T"] | None]:
    """Bound one head's margin ratio; return the interval and the multipliers that prove it.

    ``selected``: −1 where there is no query. ``gap``: relative width at which the solve stops. ``max_steps``: largest
    number of steps of the solve; 20,000 if not given. ``grams``: Gram matrices of the head's keys and queries under
    ``allowed``, which make the solve faster.

    The multipliers, of shape (n, Q, T), bound the best margin from above. They are None if no query has a choice, or if
    no matrix keeps the selection.

    References: Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, (Att-SVM).
    """
    asks = selected >= 0
    dropped = allowed & asks[..., None]
    np.put_along_axis(dropped, np.maximum(selected, 0)[..., None], False, axis=-1)
    same = dropped & duplicates(head.keys, selected)
    counts = int(np.count_nonzero(dropped)), int(np.count_nonzero(same))
    norm = float(np.linalg.norm(head.weights))
    kept = dropped & ~same
    if not kept.any():
        return MarginInterval(Status.OPTIMAL, None, norm, None, None, *counts, 0, 0), None
    margin = _smallest_margin(head, kept, selected) / norm if norm > 0 else 0.0
    svm = Problem(head.keys, queries=head.queries, mask=allowed & ~same, query_mask=asks)
    steps = max_steps or MAX_STEPS
    if margin > 0:
        constraints = Constraints.of(svm, selection_sets(svm, selected))
        done, count = _solve(constraints, head.weights, selected, gap, steps, grams)
        value, reached = float(done.value), float(done.gap)
        dual = done.dual.reshape(kept.shape)
    else:  # W does not keep its own selection; there may be no weights that do
        solution = solve_svm(
            svm,
            selected,
            method="projected-gradient",
            tol=gap,
            max_steps=steps,
            callback=lambda at: at.gap is not None and at.gap <= gap,
        )
        count = int(solution.stats["steps"])
        if solution.status == "infeasible":
            return MarginInterval(Status.INFEASIBLE, margin, norm, None, None, *counts, 0, count), None
        value, reached = float(solution.value), float(solution.gap)
        dual = solution.dual
    support = int(np.count_nonzero(dual > 0))
    if not math.isfinite(value):
        return MarginInterval(Status.INACCURATE, margin, norm, None, None, *counts, support, count), dual
    upper = min(1.0, margin * value)  # W itself is feasible, so a larger value is rounding
    lower = upper * max(0.0, 1 - reached)
    status = Status.OPTIMAL if upper - lower <= gap * upper else Status.INACCURATE
    return MarginInterval(status, margin, norm, lower, upper, *counts, support, count), dual


def _solve(
    constraints: Constraints,
    own: Float[np.ndarray, "d_k d_q"],
    selected: Int[np.ndarray, "n Q"],
    gap: float,
    steps: int,
    grams: Grams | None,
) -> tuple[Certified, int]:
    """Weights and multipliers within the gap of each other, and the number of products.

    The weights of the head are known to be feasible. So, unlike in :func:`solve_large`, there is no search for a ray,
    and they are the answer until better weights are found.
    """
    taken = 0
    start = None
    if grams is not None and constraints.inequality.shape[:2] == selected.shape:
        search = _Search(GramProducts(constraints, selected, grams), ROUNDING * gap, steps)
        done = search.run(start, own)
        taken = search.steps
        if float(done.gap) <= gap or taken >= steps:
            return done, taken
        start = search.lower_point
    search = _Search(DualProducts(constraints), gap, steps - taken)
    return search.run(start, own), taken + search.steps


class _Search:
    """The dual, min ½‖A'μ‖² − h'μ over μ ≥ 0 on unit rows; keeps the points with the best lower and upper bounds.

    Gradient steps show which multipliers are positive. Then pivoting solves for those, which takes a tenth of the time
    of products alone if there are few of them.
    """

    def __init__(self, products: DualProducts, gap: float, limit: int) -> None:
        self.products, self.gap, self.limit = products, gap, limit
        self.steps = 0
        self.lower, self.upper = 0.0, math.inf
        self.lower_point = products.right
        self.upper_point: TokenValues | None = None
        self.narrowed_at = 0

    def run(self, start: TokenValues | None, own: Float[np.ndarray, "d_k d_q"]) -> Certified:
        """The certificate of the best points, in float64."""
        products = self.products
        point, eigenvalue = start, 0.0
        if point is None:
            eigenvalue = products.largest_eigenvalue()
            point = self._by_products(products.right / eigenvalue, eigenvalue, FIRST_STEPS)
        if not self._ended and self._left > 0:
            pivoting = PivotingProgram(
                products.times, products.block, products.right, self._check, self._left, LARGEST_SHARE * self.gap
            )
            pivoting.solve(point)
            self.steps += pivoting.steps
        if not self._ended and self._left > 0:
            self._by_products(self.lower_point, eigenvalue or products.largest_eigenvalue(), self._left, True)
        weights = own if self.upper_point is None else products.adjoint(self.upper_point)
        return certify(products.constraints, FROBENIUS, weights, products.of_original_rows(self.lower_point), self.gap)

    @property
    def _left(self) -> int:
        return self.limit - self.steps

    @property
    def _ended(self) -> bool:
        return 1 - self.lower / self.upper <= self.gap

    def _by_products(self, start: TokenValues, eigenvalue: float, limit: int, face_first: bool = False) -> TokenValues:
        """The point that gradient steps and conjugate gradients reach within a number of products."""
        products = self.products
        program = BoundProgram(
            products.times,
            products.right,
            products.bounded,
            products.there,
            eigenvalue,
            self._check,
            min(limit, self._left),
        )
        point, _ = program.solve(start, face_first)
        self.steps += program.steps
        return point

    def _check(self, steps: int, point: TokenValues, image: TokenValues) -> bool:
        products, steps = self.products, self.steps + steps
        square = float(np.vdot(point, image))
        if square <= 0:
            return False
        norm, feasible = math.sqrt(square), not (point < 0).any()
        lower = float(np.vdot(point, products.right)) / norm if feasible else 0.0
        if lower > self.lower:
            self.lower, self.lower_point, self.narrowed_at = lower, point.copy(), steps
        smallest = float(np.divide(image, products.right, out=np.full(image.shape, np.inf), where=products.asked).min())
        if smallest > 0 and norm / smallest < self.upper:
            self.upper, self.upper_point, self.narrowed_at = norm / smallest, point.copy(), steps
        if self._ended or steps - self.narrowed_at > PATIENCE:
            raise Stopped
        return False


def duplicates(keys: np.ndarray, selected: Int[np.ndarray, "n Q"]) -> Bool[np.ndarray, "n Q T"]:
    """Tokens whose key equals the key of the selected token bit by bit."""
    same = np.zeros((*selected.shape, keys.shape[1]), bool)
    for i, sequence in enumerate(keys):
        _, kind = np.unique(sequence, axis=0, return_inverse=True)
        kind = kind.reshape(-1)
        same[i] = kind[np.maximum(selected[i], 0)][:, None] == kind[None, :]
    return same


def _smallest_margin(head: HeadProblem, kept: np.ndarray, selected: np.ndarray) -> float:
    logits = head.logits()
    own = np.take_along_axis(logits, np.maximum(selected, 0)[..., None], axis=-1)
    return max(0.0, float((own - logits).min(where=kept, initial=np.inf)))
