"""The margin of given weights, divided by the best margin for the same selection, as a certified interval."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Bool, Float, Int
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.selection import selection_sets
from attsvm.svm.certificate import FROBENIUS, Certified, certify
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.dual_products import DualProducts, GramProducts, Grams
from attsvm.svm.methods.frobenius.dual_search import DualSearch
from attsvm.svm.solve import solve_svm

MAX_STEPS = 20_000
"""Largest number of products with the constraints if no limit is given."""

FIRST_STEPS = 120
"""Products with the constraints before pivoting. With fewer, pivoting needs more exchanges, which take longer."""

LARGEST_SHARE = 0.2
"""Margins that are short by this part of the gap do not keep pivoting from going on."""

ROUNDING = 0.9
"""Part of the required gap at which float32 stops, so that float64 can confirm it."""


class HeadProblem(NamedTuple):
    """Keys, queries and W of one head; its logits are k_it'W z_iq."""

    # the tokens that enter the layer; with rotary positions, the rotated keys of the head
    keys: Float[np.ndarray, "n T d_k"]
    # the tokens that enter the layer with a constant coordinate 1; with rotary positions, the rotated queries
    queries: Float[np.ndarray, "n Q d_q"]
    weights: Float[np.ndarray, "d_k d_q"]  # W = W_K (W_Q; b_Q)'/√d_h; with rotary positions, I/√d_h

    def logits(self) -> Float[np.ndarray, "n Q T"]:
        # one product for all sequences: BLAS divides each of many small ones between its threads, which takes ten times
        # as long
        rows = self.queries.reshape(-1, self.queries.shape[-1]).astype(self.weights.dtype)
        moved = (rows @ self.weights.T).reshape(*self.queries.shape[:-1], -1)
        logits: np.ndarray = moved @ self.keys.mT.astype(self.weights.dtype)
        return logits

    def of_selection(self, allowed: Bool[np.ndarray, "n Q T"], selected: Int[np.ndarray, "n Q"]) -> Problem:
        """The Att-SVM problem of the queries that select a token; the others have −1."""
        return Problem(self.keys, queries=self.queries, mask=allowed, query_mask=selected >= 0)


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
        """Compute the width of the interval, relative to its upper end; 0 if the upper end is 0."""
        if self.lower is None or self.upper is None:
            return None
        return (self.upper - self.lower) / self.upper if self.upper else 0.0

    def for_gap(self, gap: float) -> "MarginInterval":
        """Return the same interval with its status for another required width."""
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
    dropped = allowed & (selected >= 0)[..., None]
    np.put_along_axis(dropped, np.maximum(selected, 0)[..., None], False, axis=-1)
    svm = head.of_selection(allowed, selected)
    # tokens with the key of the selected one are kept with it
    same = dropped & selection_sets(svm, selected)
    counts = int(np.count_nonzero(dropped)), int(np.count_nonzero(same))
    norm = float(np.linalg.norm(head.weights))
    kept = dropped & ~same
    if not kept.any():
        return MarginInterval(Status.OPTIMAL, None, norm, None, None, *counts, 0, 0), None
    # W over its smallest margin is feasible, so ‖W‖ over it bounds the least norm from above
    margin = _smallest_margin(head, kept, selected) / norm if norm > 0 else 0.0
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
    """Find weights and multipliers within the gap of each other, and the number of products.

    The weights of the head are known to be feasible. So there is no search for a ray, and they are the answer until
    better weights are found.
    """
    taken, start = 0, None
    if grams is not None and constraints.inequality.shape[:2] == selected.shape:
        search = _IntervalSearch(GramProducts(constraints, selected, grams), ROUNDING * gap, steps)
        done = search.certified(start, own)
        taken = search.steps
        if float(done.gap) <= gap or taken >= steps:
            return done, taken
        start = search.lower_point
    search = _IntervalSearch(DualProducts(constraints), gap, steps - taken)
    return search.certified(start, own), taken + search.steps


class _IntervalSearch(DualSearch):
    """The search on the dual for the best lower and upper bounds, which may be those of different points.

    Gradient steps show which multipliers are positive. Then pivoting solves for those, which takes a tenth of the time
    of products alone if there are few of them.
    """

    feasible = True
    products: DualProducts
    lower, upper_bound = 0.0, math.inf
    lower_point: TokenValues | None = None
    upper_point: TokenValues | None = None

    def certified(self, start: TokenValues | None, own: Float[np.ndarray, "d_k d_q"]) -> Certified:
        """Return the certificate of the best points, in float64; ``own``: the weights if no better ones were found."""
        products = self.products
        point = start
        if point is None:
            point, _ = self.by_products(products.right / products.eigenvalue, FIRST_STEPS)
        if self.running:
            positive = point[point > 0]
            likely = point >= (np.median(positive) if len(positive) else math.inf)
            self.by_pivoting(point, likely, LARGEST_SHARE * self.target * products.right)
        lower = products.right if self.lower_point is None else self.lower_point
        if self.running:
            self.by_products(lower, self.limit, face_first=True)
            lower = lower if self.lower_point is None else self.lower_point
        weights = own if self.upper_point is None else products.adjoint(self.upper_point)
        return certify(products.constraints, FROBENIUS, weights, products.of_original_rows(lower), self.target)

    def measure(self, point: TokenValues, image: TokenValues) -> tuple[float, float]:
        """Update the bounds; return the gap between them."""
        products, square = self.products, float(np.vdot(point, image))
        if square > 0:
            norm = math.sqrt(square)
            lower = 0.0 if (point < 0).any() else float(np.vdot(point, products.right)) / norm
            if lower > self.lower:
                self.lower, self.lower_point = lower, point.copy()
            least = np.divide(image, products.right, out=np.full(image.shape, np.inf), where=products.asked).min()
            if least > 0 and norm / least < self.upper_bound:
                self.upper_bound, self.upper_point = norm / float(least), point.copy()
        return 1 - self.lower / self.upper_bound, 1.0


def _smallest_margin(head: HeadProblem, kept: np.ndarray, selected: np.ndarray) -> float:
    logits = head.logits()
    own = np.take_along_axis(logits, np.maximum(selected, 0)[..., None], axis=-1)
    return max(0.0, float((own - logits).min(where=kept, initial=np.inf)))
