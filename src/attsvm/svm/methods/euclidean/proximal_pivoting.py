"""Least Frobenius norm of one problem with up to some thousand rows: proximal steps on the dual, by block pivoting.

The dual min ½μ'Kμ − h'μ over μ ≥ 0 (free on equalities) has the Gram matrix K of the unit rows. Rows that depend on
each other make it singular, and pivoting then cycles. The proximal steps

    μ⁺ = argmin ½μ'Kμ − h'μ + ½ρ‖μ − μ°‖²

have a definite matrix K + ρI. Each needs few factorisations, because it starts from the positive entries of the last
one, and with decreasing ρ a handful of steps reaches the accuracy of rounding.

References
----------
Rockafellar (1976), *Augmented Lagrangians and applications of the proximal point algorithm in convex programming*.
"""

import numpy as np
from jaxtyping import Float

from attsvm.svm.certificate import FROBENIUS, certify
from attsvm.svm.constraints.constraints import Constraints, TokenValues
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.methods.candidate import Candidate
from attsvm.svm.methods.euclidean.block_pivoting import block_pivoting

METHOD = "proximal-pivoting"
"""Name of the method in ``stats``."""

MOST_ROWS = 4_000
"""Rows of the largest problem: K takes 128 MB then."""

FIRST_WEIGHT, LEAST_WEIGHT = 1e-2, 1e-6
"""The first and the smallest ρ, for unit rows."""

LOWER, HIGHER = 0.03, 10.0
"""Factors of ρ after a step, and after a step that pivoting did not find."""

MOST_STEPS, MOST_FAILURES, MOST_EXCHANGES = 20, 4, 15
"""Of all steps together, steps that pivoting did not find, and exchanges in a step."""

ENOUGH, LAST = 1e-10, 1e-13
"""A gap and a violation below the first are an answer, and below the second they end the steps."""


def solve_by_pivoting(constraints: Constraints, start: TokenValues, why: str) -> Candidate | None:
    """The weights of least Frobenius norm, or None if the steps do not reach them, as without feasible weights.

    Parameters
    ----------
    constraints : Constraints
        Without leading axes.
    start : ndarray, shape (n, Q, T)
        Multipliers of the original rows near those of the optimum.
    why : str
        Why the method was chosen; part of the candidate.
    """
    products = DualProducts(constraints)
    place = np.flatnonzero(products.there)
    gram, right = _gram(products, place), products.right.reshape(-1)[place]
    free = ~products.bounded.reshape(-1)[place]
    diagonal = gram.reshape(-1)[:: len(place) + 1]
    multipliers = products.of_unit_rows(start).reshape(-1)[place]
    positive = multipliers > 0 if (multipliers > 0).any() else None
    weight, raised, best, failures = FIRST_WEIGHT, 0.0, np.inf, 0
    answer = None
    for step in range(1, MOST_STEPS + 1):
        diagonal += weight - raised
        raised = weight
        found = block_pivoting(gram, right + weight * multipliers, free, positive, MOST_EXCHANGES)
        if found is None:
            weight, failures = HIGHER * weight, failures + 1
            if failures > MOST_FAILURES:
                break
            continue
        multipliers, positive, weight = found, found > 0, max(LOWER * weight, LEAST_WEIGHT)
        whole = np.zeros(products.right.shape)
        whole.reshape(-1)[place] = multipliers
        candidate = Candidate(
            products.adjoint(whole), products.of_original_rows(whole), np.asarray(False), np.asarray(step), METHOD, why
        )
        done = certify(constraints, FROBENIUS, candidate.weights, candidate.multipliers)
        error = max(float(done.gap), float(done.violation))
        settled = error <= LAST or error > 0.5 * best  # rounding keeps it from getting much better
        if error < min(best, ENOUGH):
            answer, best = candidate, error
        if settled:
            break
    return answer


def _gram(products: DualProducts, place: np.ndarray) -> Float[np.ndarray, "m m"]:
    """The inner products of unit rows: of their differences of keys, times those of their queries."""
    constraints = products.constraints
    differences = constraints.differences(place)
    queries = constraints.queries_of(place)
    gram = differences @ differences.T
    gram *= queries @ queries.T
    inverse = products.of_original_rows(np.ones(products.right.shape)).reshape(-1)[place]
    gram *= inverse[:, None]
    gram *= inverse
    return np.asarray(gram)
