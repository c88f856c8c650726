"""Least Frobenius norm of one problem with up to some thousand rows: proximal steps on the dual, by block pivoting.

The dual min ½μ'Kμ − h'μ over μ ≥ 0 (free on equalities) has the Gram matrix K of the unit rows. Rows that depend on
each other make it singular, and pivoting then cycles. The proximal steps

    μ⁺ = argmin ½μ'Kμ − h'μ + ½ρ‖μ − μ°‖²

have a definite matrix K + ρI. Each needs few factorisations, because it starts from the positive entries of the last
one, and with decreasing ρ ten to twenty steps reach the accuracy of rounding.

References
----------
Rockafellar (1976), *Augmented Lagrangians and applications of the proximal point algorithm in convex programming*.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from attsvm.svm.certificate import FARKAS_BOUND, FROBENIUS, certify
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.methods.candidate import Candidate
from attsvm.svm.methods.euclidean.block_pivoting import block_pivoting

Vector = Float[np.ndarray, " m"]

METHOD = "proximal-pivoting"
"""Name of the method in ``stats``."""

MOST_ROWS = 4_000
"""Rows of the largest problem: K and a copy take 128 MB each then."""

FIRST_WEIGHT, LEAST_WEIGHT = 1e-2, 1e-6
"""The first and the smallest ρ, for unit rows."""


class Schedule(NamedTuple):
    """Factors of ρ after a step, and after a step that pivoting did not find, and limits."""

    lower: float
    higher: float
    # steps, failures, exchanges: of all steps together, steps that pivoting did not find, and exchanges in a step
    steps: int
    failures: int
    exchanges: int


FAST = Schedule(0.03, 10.0, 20, 4, 15)
PATIENT = Schedule(0.2, 4.0, 60, 20, 30)
"""For large values: problems that are nearly infeasible."""


GROWTH = 1.2
"""The Farkas bound grows at least by this factor from step to step if there is a ray, and without one it converges."""

ENOUGH, LAST = 1e-10, 1e-13
"""A gap and a violation below the first are an answer, and below the second they end the steps."""


def solve_by_pivoting(constraints: Constraints, start: TokenValues, why: str) -> Candidate | None:
    """The weights of least Frobenius norm or Farkas multipliers; None if the steps reach neither.

    Without feasible weights the dual has no minimum. If a fast schedule fails, steps minimise ½u'Ku + ½σ(a'u − 1)² over
    u ≥ 0, with a = 1 on the rows that require a margin. The minimum is 0 exactly if u is a Farkas certificate.

    ``constraints``: without leading axes. ``start``: multipliers of the original rows near those of the optimum.
    ``why``: why the method was chosen; part of the candidate.
    """
    rows = _Rows(constraints)
    own = rows.products.of_unit_rows(start).reshape(-1)[rows.place]
    return _optimum(rows, own, FAST, why) or _ray(rows, why) or _optimum(rows, own, PATIENT, why)


class _Rows:
    """The rows of one problem: their Gram matrix, right sides and places."""

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        self.products = products = DualProducts(constraints)
        self.place = np.flatnonzero(products.there)
        self.gram, self.right = products.block(self.place, self.place), products.right.reshape(-1)[self.place]
        self.free = ~products.bounded.reshape(-1)[self.place]

    def candidate(self, multipliers: Vector, is_ray: bool, step: int, why: str) -> Candidate:
        """The candidate that these multipliers of unit rows belong to."""
        products = self.products
        whole = np.zeros(products.right.shape)
        whole.reshape(-1)[self.place] = multipliers
        weights = np.zeros(self.constraints.weights_shape) if is_ray else products.adjoint(whole)
        own = products.of_original_rows(whole)
        return Candidate(weights, own, np.asarray(is_ray), np.asarray(step), METHOD, why)


def _optimum(rows: _Rows, start: Vector, schedule: Schedule, why: str) -> Candidate | None:
    """The weights of least norm, or None."""
    answer, best = None, np.inf
    for step, multipliers in _proximal_steps(rows.gram.copy(), rows.right, rows.free, start, schedule):
        candidate = rows.candidate(multipliers, False, step, why)
        done = certify(rows.constraints, FROBENIUS, candidate.weights, candidate.multipliers)
        error = max(float(done.gap), float(done.violation))
        settled = error <= LAST or error > 0.5 * best  # rounding keeps it from getting much better
        if error < min(best, ENOUGH):
            answer, best = candidate, error
        if settled:
            break
    return answer


def _ray(rows: _Rows, why: str) -> Candidate | None:
    """Farkas multipliers, or None."""
    asked = (rows.right > 0).astype(np.float64)
    total = asked.sum()
    if total == 0:
        return None
    sigma = float(asked @ rows.gram @ asked) / total**2
    gram, best = rows.gram + sigma * np.outer(asked, asked), 0.0
    for step, multipliers in _proximal_steps(gram, sigma * asked, rows.free, np.zeros(len(asked)), FAST):
        candidate = rows.candidate(multipliers, True, step, why)
        pull = float(np.linalg.norm(rows.constraints.adjoint(candidate.multipliers)))
        bound = float(asked @ multipliers) / pull if pull else np.inf
        if bound > 2 * FARKAS_BOUND:
            return candidate
        if bound < GROWTH * best:
            break
        best = max(best, bound)
    return None


def _proximal_steps(
    gram: Float[np.ndarray, "m m"], right: Vector, free: Bool[np.ndarray, " m"], start: Vector, schedule: Schedule
) -> Iterator[tuple[int, Vector]]:
    """The number and the multipliers of each proximal step that pivoting found. The matrix is overwritten."""
    diagonal = gram.reshape(-1)[:: len(right) + 1]
    multipliers, positive = start, start > 0 if (start > 0).any() else None
    weight, raised, failures = FIRST_WEIGHT, 0.0, 0
    for step in range(1, schedule.steps + 1):
        diagonal += weight - raised
        raised = weight
        found = block_pivoting(gram, right + weight * multipliers, free, positive, schedule.exchanges)
        if found is None:
            weight, failures = schedule.higher * weight, failures + 1
            if failures > schedule.failures:
                return
            continue
        multipliers, positive, weight = found, found > 0, max(schedule.lower * weight, LEAST_WEIGHT)
        yield step, multipliers
