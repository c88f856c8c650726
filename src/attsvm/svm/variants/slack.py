"""The soft-margin Att-SVM, for selections that no weights keep, or that only very large weights keep."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from attsvm._utils.checks import check_number
from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.svm.certificate import (
    FROBENIUS,
    UNIT,
    Certified,
    certify,
    length_of,
    rounding_of_margins,
    rounding_of_sums,
)
from attsvm.svm.constraints.biases import block_gram
from attsvm.svm.constraints.constraints import Constraints, TokenMask, TokenValues, Weights
from attsvm.svm.constraints.dual_products import DualProducts
from attsvm.svm.methods.frobenius.choice import GOOD_GAP, MAX_STEPS
from attsvm.svm.methods.frobenius.dual_search import DualSearch
from attsvm.svm.methods.frobenius.pivoting import FEW_ROWS
from attsvm.svm.methods.frobenius.projected_gradient import ProjectedGradient
from attsvm.svm.methods.frobenius.proximal_pivoting import LEAST_WEIGHT, MOST_ROWS, ProximalPivoting
from attsvm.svm.methods.registry import Candidate, SolverSettings
from attsvm.svm.tolerances import DEPENDENT, ROUNDED

FIRST_STEPS = 300
"""Products of a large problem before pivoting. The Frobenius norm needs more, as it has to decide feasibility, too."""

STIFF = 1e8
"""The largest upper bound, relative to the right sides, up to which pivoting finds the entries at their bounds. With
larger ones a problem is solved in a smaller box first."""


class SoftMargin(NamedTuple):
    """What the multipliers prove."""

    certified: Certified
    objective: np.ndarray


def check_slack(slack: float, norm: Norm, constraints: Constraints, relaxed: object) -> float:
    """Return C as a float.

    Raises ProblemError if it is not a positive number, the norm is not the Frobenius norm, sets are selected, or
    ``relaxed`` is given.
    """
    C = check_number("slack", slack, "a positive number C", lambda x: x > 0)
    if norm is not FROBENIUS:
        raise ProblemError(f"slack: expected the Frobenius norm, or the l2 norm of a prompt, got {norm.name}")
    if constraints.equality is not None:
        raise ProblemError("slack: expected one selected token per query, got sets of tokens")
    if relaxed is not None:
        raise ProblemError("slack, relaxed: expected only one of them")
    return C


def solve_slack(constraints: Constraints, C: float, settings: SolverSettings, hard: Candidate) -> Candidate:
    """Find multipliers 0 ≤ λ ≤ C of min ½‖W‖² + C Σ max(0, 1 − A(W)); the weights are A*(λ).

    If the hard-margin multipliers are at most C, they are the answer. Otherwise the dual is solved with the upper bound
    C, by the methods of :class:`DualSearch`: with few rows by pivoting alone, with more after projected gradient steps.

    ``constraints``: with one token per query and no relaxed query. ``hard``: the candidate of the Frobenius solver for
    the same constraints.
    """
    if not np.isfinite(constraints.norms).all():
        return Candidate.nothing(constraints, "norms of rows are not finite")
    batch, flat = constraints.batch_shape, constraints.with_one_axis()
    steps = np.zeros(len(flat.inequality), int)
    # λ ≤ C holds for a hard margin: no row has a slack variable above 0
    fits, multipliers = (
        part.reshape(-1, *part.shape[len(batch) :])
        for part in _hard_margin(constraints, C, hard.weights, hard.multipliers)
    )
    method, why = "hard-margin", "every hard-margin multiplier is at most C"
    for k in np.flatnonzero(~fits):
        search = _BoxSearch(flat[k], C, settings)
        multipliers[k] = search.multipliers()
        steps[k], method, why = search.steps, search.method, search.why
    multipliers = multipliers.reshape(constraints.inequality.shape)
    return Candidate(
        weights=_touched_up(constraints, C, multipliers),
        multipliers=multipliers,
        ray=np.zeros(batch, dtype=bool),
        steps=steps.reshape(batch),
        method=method,
        why=why,
    )


class _BoxSearch(DualSearch):
    """The dual min ½‖A'μ‖² − h'μ over 0 ≤ μ ≤ C‖rows‖ of one problem, on unit rows."""

    feasible = True  # W = 0 is
    products: DualProducts

    def __init__(self, constraints: Constraints, C: float, settings: SolverSettings) -> None:
        self.C, products = C, DualProducts(constraints)
        self.box = upper = C / products.scale * constraints.norms
        super().__init__(products, GOOD_GAP, settings.max_steps or MAX_STEPS, settings.report, upper)
        self.few = constraints.most_rows <= FEW_ROWS
        self.method, self.why = "proximal-pivoting", "small: the Gram matrix of the rows fits in memory"
        if not self.few:
            self.method, self.why = "projected-gradient", "large: by products with keys and queries"

    def multipliers(self) -> TokenValues:
        """Solve for λ of the original rows. That of a row of zeros is C, because its margin is 0 for all weights."""
        products, upper = self.products, self.box
        point, inside = np.zeros(products.right.shape), products.asked
        if products.asked.any():
            if not self.few:
                program = self._program(min(FIRST_STEPS, self.limit))
                method = ProjectedGradient(program, products.eigenvalue)
                point, _ = self.descend(program, method.points(point, gradient_alone=True), point)
                inside = (point > 0) & (point < upper)
            share = min(1.0, STIFF / upper.max())
            self.upper = upper * share
            point = self.by_pivoting(point * share, inside, ROUNDED * products.right) / share
            if share < 1:
                # rounding hides which entries are at a bound, but not in a smaller box, where they are mostly the same
                self.upper, inside = upper, (point > 0) & (point < upper)
                program = self._program(self.limit)
                pivoting = ProximalPivoting(program, products.block, ROUNDED * products.right)
                exact = self.descend(program, pivoting.points(point, inside, LEAST_WEIGHT), point)
                candidates = (point, self._on_face(point, inside), *exact)
                return min((self.of_original_rows(each) for each in candidates), key=self._gap)
            if self.running and not self.few:
                point, _ = self.by_products(point, self.limit, face_first=True)
        return self.of_original_rows(point)

    def _on_face(self, point: TokenValues, inside: TokenMask) -> TokenValues:
        """Solve K_FF μ_F = h_F − K_FU C_U for the entries inside the box, with those at the upper bound."""
        products, rows = self.products, np.flatnonzero(inside)
        point = np.where(inside, 0.0, point)
        rest = (products.right - products.times(point)).reshape(-1)[rows]
        point.reshape(-1)[rows] = np.linalg.lstsq(products.block(rows, rows), rest, rcond=DEPENDENT)[0]
        return np.asarray(np.clip(point, 0.0, self.box))

    def of_original_rows(self, point: TokenValues) -> TokenValues:
        """Compute λ = μ/‖row‖, C at the upper bound."""
        products = self.products
        own = products.of_original_rows(point * products.scale)
        own = np.where(point >= self.box, self.C, np.minimum(own, self.C))
        return np.where(products.constraints.inequality, own, 0.0)

    def _gap(self, multipliers: TokenValues) -> float:
        constraints = self.products.constraints
        weights = _touched_up(constraints, self.C, multipliers)
        return float(certify_slack(constraints, self.C, weights, multipliers).certified.gap)

    def measure(self, point: TokenValues, image: TokenValues) -> tuple[float, float]:
        """Compute (P − D)/P, where P − D = Σ μ(A − h)₊ + Σ (C − μ)(h − A)₊; ∞ outside the bounds."""
        upper = self.box if self.upper is None else self.upper
        if (point < 0).any() or (point > upper).any():
            return np.inf, 1.0
        # above and below: how far the margins are from their right sides
        slack = image - self.products.right
        above, below = np.maximum(slack, 0.0), np.maximum(-slack, 0.0)
        primal = 0.5 * float(np.vdot(point, image)) + float(np.vdot(upper, below))
        excess = float(np.vdot(point, above)) + float(np.vdot(upper - point, below))
        return excess / primal if primal > 0 else np.inf, 1.0


def best_soft_margin(
    constraints: Constraints,
    C: float,
    settings: SolverSettings,
    candidate: Candidate,
    hard: Candidate,
    exact: Callable[[int], Constraints],
) -> SoftMargin:
    """What a candidate proves; where that is not enough, the best of it, W = 0, the hard margin and a smaller C.

    ``exact``: the constraints of one problem with exact products.
    """
    found = certify_slack(constraints, C, candidate.weights, candidate.multipliers)
    left = found.certified.gap > settings.tol
    fields = [np.array(field) for field in (*found.certified, found.objective)]
    for k in np.flatnonzero(left):
        index, rows = np.unravel_index(k, constraints.batch_shape), exact(int(k))
        one, dual, of_hard = constraints[index], found.certified.dual[index], hard.weights[index]
        duals = [dual, 0 * dual, _hard_margin(one, C, of_hard, hard.multipliers[index])[1]]
        weights = [candidate.weights[index], 0 * of_hard, of_hard, *_multiples(rows, C, of_hard)]
        weights.append(certify(one, FROBENIUS, of_hard, hard.multipliers[index], settings.tol).weights)
        lengths = one.norms[one.norms > 0]
        share = STIFF / (C * float(lengths.max(initial=0.0) * lengths.min(initial=np.inf)))
        if share < 1:  # without a hard margin, the weights hardly depend on a large C
            small = _BoxSearch(one, C * share, settings).multipliers()
            weights.append(_touched_up(one, C * share, small))
        best = min(weights, key=lambda each: certify_slack(rows, C, each, dual).objective)
        answers = [certify_slack(rows, C, best, each) for each in duals]
        answer = min(answers, key=lambda each: each.certified.gap)
        for field, own in zip(fields, (*answer.certified, answer.objective), strict=True):
            field[index] = own
    return SoftMargin(Certified(*fields[:-1]), fields[-1]) if left.any() else found


def certify_slack(constraints: Constraints, C: float, weights: Weights, multipliers: TokenValues) -> SoftMargin:
    """The bounds that weights W and multipliers 0 ≤ λ ≤ C prove: P(W) ≥ optimum ≥ D(λ).

    P − D is computed without cancellation: it is the sum of λ (A(W) − 1) over the rows above their margin, of
    (C − λ)(1 − A(W)) over those below, and of ½‖W − A*(λ)‖². The gap contains a bound on the rounding errors.
    """
    flat = constraints.flat
    dual = np.clip(multipliers, 0.0, C) * constraints.inequality
    mask, of_dual, length = flat(constraints.inequality), flat(dual), length_of(weights)
    # the slack variables are max(0, short)
    short, pull = -flat(constraints.slack(weights)) * mask, constraints.adjoint(dual)
    error = rounding_of_margins(constraints) * flat(constraints.magnitude(weights))
    apart_error = rounding_of_sums(constraints) * np.vecdot(of_dual, flat(constraints.sizes))
    if constraints.is_exact:
        error, apart_error = UNIT * abs(short), 2 * UNIT * (length + length_of(pull))
    apart = length_of(weights - pull)
    gap, objective = _soft_gap(C, of_dual, length, short, error, apart + apart_error)
    some = mask.any(axis=-1)
    smallest = 1.0 - np.max(short + error, axis=-1, where=mask, initial=-np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = np.where(some & (length > 0), smallest / length, np.nan)
    done = Certified(
        weights=weights,
        dual=dual,
        value=length,
        margin=margin,
        gap=gap,
        violation=np.zeros(constraints.batch_shape),
        raw_violation=np.zeros(constraints.batch_shape),
        support=dual > 0,
    )
    return SoftMargin(done, objective)


def _soft_gap(
    C: float, dual: np.ndarray, length: np.ndarray, short: np.ndarray, error: np.ndarray, apart: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """An upper bound on (P − D)/P, and P, for rows that are short of their margin by ``short`` up to ``error``."""

    def excess_of(short: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(short > 0, (C - dual) * short, -dual * short))

    objective = 0.5 * length**2 + C * np.maximum(short, 0.0).sum(axis=-1)
    least = 0.5 * length**2 + C * np.maximum(short - error, 0.0).sum(axis=-1)
    # the excess of a row is a convex function of its margin
    excess = np.maximum(excess_of(short - error), excess_of(short + error)).sum(axis=-1) + 0.5 * apart**2
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(excess == 0, 0.0, excess / least)
    # nothing is proved if norms of rows overflow or underflow
    return np.where(np.isnan(gap), np.inf, gap), objective


def _touched_up(constraints: Constraints, C: float, multipliers: TokenValues) -> Weights:
    """A*(λ), or the nearest weights with a margin of 1 on the rows with 0 < λ < C if these have a smaller gap.

    For large C, A*(λ) is a small sum of large terms and loses digits. A margin that rounding leaves below 1 costs C
    times the difference, while slightly longer weights cost almost nothing.
    """
    weights = constraints.adjoint(multipliers)
    if constraints.batch_shape:
        pairs = ((constraints[i], multipliers[i]) for i in np.ndindex(constraints.batch_shape))
        return np.stack([_touched_up(each, C, own) for each, own in pairs]).reshape(weights.shape)
    inside = (multipliers > 0) & (multipliers < C)
    number = np.count_nonzero(inside)
    if not 0 < number <= MOST_ROWS:
        return weights
    # the least change A*(ν) of W with A(W + A*(ν)) = 1 on these rows: A A*(ν) = 1 − A(W)
    lacking = (1.0 - constraints.apply(weights))[inside]
    moved = np.zeros(multipliers.shape)
    gram = _gram(constraints, inside.reshape(-1))
    moved[inside] = np.linalg.lstsq(gram, lacking, rcond=DEPENDENT)[0]
    exact = weights + constraints.adjoint(moved)
    # weights that are longer by what rounding may take from the margins
    padding = 1 + rounding_of_margins(constraints) * float(constraints.magnitude(exact).max(where=inside, initial=0.0))
    candidates = (weights, exact, weights * padding, exact * padding)
    return min(candidates, key=lambda each: certify_slack(constraints, C, each, multipliers).certified.gap)


def _hard_margin(
    constraints: Constraints, C: float, weights: Weights, multipliers: TokenValues
) -> tuple[np.ndarray, TokenValues]:
    """Tell where the hard-margin multipliers are at most C, and return these multipliers with W = A*(λ).

    ``weights``, ``multipliers``: the answer with a hard margin, at any scale.
    """
    flat = constraints.flat
    dual = np.maximum(multipliers, 0.0) * constraints.inequality
    smallest = np.asarray(constraints.smallest_margin(weights))
    fine = (smallest > 0) & np.isfinite(smallest)
    # W has the length b'λ/‖A*(λ)‖ at a margin of 1, and λ is that of W = A*(λ) if its sum is the square of this
    total, pull = flat(dual).sum(axis=-1), length_of(constraints.adjoint(dual))
    scaled = dual * np.where(fine & (pull > 0), total / pull / pull, 1.0)[..., None, None, None]
    fits = np.asarray(fine & (flat(scaled).max(axis=-1, initial=0.0) <= C))
    return fits, scaled


def _multiples(constraints: Constraints, C: float, weights: Weights) -> Iterator[Weights]:
    """Yield the multiples of weights of one problem that may have the least objective.

    Where all margins are positive, these have margins of 1, with or without rounding errors. The last one minimises
    ½s²‖W‖² + C Σ (1 − s A(W))₊, whose slope s‖W‖² − C Σ A(W) over the rows with s A(W) < 1 jumps at 1/A(W).
    """
    margins = constraints.apply(weights)
    error = 2 * rounding_of_margins(constraints) * constraints.magnitude(weights)
    for least in (margins, margins - error):
        smallest = float(least.min(where=constraints.inequality, initial=np.inf))
        if 0 < smallest < np.inf:
            yield weights / smallest
    own, square = margins[constraints.inequality], float(length_of(weights)) ** 2
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        jumps = np.sort(1 / own[own > 0])
        # between two jumps the rows of the earlier ones are left out of the sum
        ends, later = np.append(jumps, np.inf), np.append(np.cumsum(1 / jumps[::-1])[::-1], 0.0)
        left = own[own <= 0].sum() + later
        place = int(np.argmax(ends * square >= C * left))
        best = max(C * left[place] / square, np.append(0.0, jumps)[place])
    if np.isfinite(best):
        yield weights * best


def _gram(constraints: Constraints, rows: np.ndarray) -> np.ndarray:
    """Compute products of some rows of one problem, chosen by a mask over the flattened (n, Q, T)."""
    position = np.flatnonzero(rows)
    left, queries = constraints.differences(position), constraints.queries_of(position)
    return block_gram(left, queries, constraints.blocks)
