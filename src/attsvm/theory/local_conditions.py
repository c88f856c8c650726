"""The cone around a locally optimal direction that gradient descent does not leave, computed from the data."""

import math
from typing import Any, NamedTuple

import numpy as np

from attsvm._utils.checks import check_number
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.errors import ProblemError
from attsvm.losses import OutputLoss, parse_margin_loss
from attsvm.measures import token_logits
from attsvm.problem import Problem, check_is_problem
from attsvm.results import Status
from attsvm.selection import is_locally_optimal, selection_sets
from attsvm.svm import Solution, solve_svm
from attsvm.theory.conditions import Conditions, Hypothesis, conditions
from attsvm.theory.loss_level import least_radius
from attsvm.theory.smoothness import LossName, extent, scores_of_queries

WIDEST = 0.5
"""The proof is for cones of at most this opening."""
FRACTIONS = np.linspace(0.04, 0.96, 24)
"""Half-widths of the cones that are compared, relative to the widest one."""
DOUBLINGS = 80
"""Of the radius 1, to find one that is large enough."""


class Cones(NamedTuple):
    """Cones from a radius on."""

    holds: Bool[np.ndarray, "*batch"]
    """Whether the inequalities of the proof hold at the radius; then they hold at every larger one, too."""
    radius: Float[np.ndarray, "*batch"]
    longest_step: Float[np.ndarray, "*batch"]
    largest_rate: Float[np.ndarray, "*batch"]
    growth: Float[np.ndarray, "*batch"]
    """β: ⟨u, Ŵ⟩ ≥ β for the unit direction u of descent, at the radius and beyond."""


class TokenConstants(NamedTuple):
    """Hold what the bounds need of every token, with the axes (*batch, n, Q, T)."""

    others: Bool[np.ndarray, "*batch n Q T"]
    support: Bool[np.ndarray, "*batch n Q T"]
    gap: Float[np.ndarray, "*batch n Q T"]
    """Score of the selected token minus that of this one."""
    margin: Float[np.ndarray, "*batch n Q T"]
    """⟨r, D⟩ for the row r = (k_selected − k_t) z' and the unit direction D."""
    length: Float[np.ndarray, "*batch n Q T"]
    """‖r‖."""
    least_slope: Float[np.ndarray, "*batch n Q 1"]
    """min −ℓ' over m."""
    weight: Float[np.ndarray, "*batch n Q 1"]
    """max |ℓ'| times the range of the scores, over m."""
    number: Int[np.ndarray, "*batch n Q 1"]
    """m, the number of tokens with the key of the selected one."""
    best_margin: Float[np.ndarray, "*batch 1 1 1"]
    """Ξ = 1/‖W_svm‖, the margin of D."""


def local_convergence_conditions(
    problem: Problem, selected: Any, loss: LossName = "logistic", *, opening: float | None = None
) -> Conditions:
    r"""Compute a cone around the Att-SVM of a locally optimal selection that gradient descent does not leave.

    Parameters
    ----------
    problem : Problem
        With labels ±1, or two classes, and a head, which is not trained.
    selected : int array, Run, Solution or Prediction
        One token per query, as for :func:`attsvm.solve_svm`.
    loss : str, Loss or callable
        As for :func:`attsvm.train`. Slopes of a loss that is not built in are compared at 257 points only.
    opening : float, optional
        1 − the smallest correlation of weights in the cone with the direction, below 1/2. By default the opening whose
        radius is smallest.

    Returns
    -------
    Conditions
        Of a cone {W : ⟨W, D⟩ ≥ (1 − opening) ‖W‖ ‖D‖, ‖W‖ ≥ radius}, where D is the direction of ``solution``, the
        Frobenius Att-SVM of the selection. The names of the hypotheses:

        - ``solved``: the Att-SVM is ``optimal``; an inaccurate direction D proves nothing.
        - ``locally_optimal``: the selection is feasible, and every support token scores strictly below the selected
          token.
        - ``radius``: there is a cone. Its number is the norm from which the cone is invariant; ∞ if there is none.

        Further numbers:

        - ``opening``: 1 − the smallest correlation with D; 0 if there is no cone.
        - ``longest_step``: the longest step along the negative gradient for which this is proved, at the radius. At
          larger weights it is longer, in proportion to their norm.
        - ``growth``: such a step of length h adds at least this times h to the norm.
        - ``largest_rate``: the largest learning rate of gradient descent for which it is: ``longest_step`` over a bound
          of the gradient in the cone.
        - ``support_gap``: the smallest difference of the scores of a selected token and a support token. It must be
          positive.
        - ``widest``: every opening below this has a finite radius.

    Raises
    ------
    ProblemError
        If the problem has no labels, more than two classes or no head, or an argument does not fit.

    See Also
    --------
    attsvm.theory.Conditions : The result.
    attsvm.measures.in_cone, attsvm.classify

    Notes
    -----
    Let D be the unit Att-SVM direction, Ξ its margin, W = r·Ŵ weights of correlation c' ≥ c = 1 − opening with D,
    s² = 1 − c², and w_it = |ℓ'(f_i)| a_it (f_i − γ_it)/n, so that −∇L(W) = Σ w_it r_it over the tokens that are not
    selected, with rows r_it = (k_selected − k_it) z_i'. The Att-SVM solution is a combination of rows of support tokens
    with positive multipliers, and their margins under Ŵ have the weighted mean c'Ξ. So some support token has a margin
    of at most c'Ξ, and its weight w is at least of order exp(−r c'Ξ). Near the border of the cone it pulls W inside:
    ⟨r_it, D − cŴ⟩ ≥ Ξ − cc'Ξ ≈ s²Ξ. A token pulls outside only if its margin under Ŵ exceeds Ξ/c, or if its score is
    higher than the output. The weights of the first kind are smaller by exp(−rΞs²/c). Those of the second kind are no
    support tokens: their margins under D are larger than Ξ, and stay so in a cone that is narrow enough. Hence from
    some radius on the pull inside dominates, also over the second-order term of a step that is short compared with
    rΞs². The norm grows for the same reason. ``radius`` is the smallest r for which these inequalities hold with all
    sums bounded token by token.

    The bounds are conservative; smaller and wider cones are invariant in practice. The constants are not from the
    papers, which state that an opening and a radius exist.

    The note ``docs/notes/normalised_descent.md`` has the complete proof, and that normalised steps converge to D in
    direction.

    Gradient descent in the cone converges to D in direction if its rate is at most 1/L. Its loss decreases, and the sum
    of its squared steps is finite. Since ⟨−∇L, Ŵ⟩ > 0 everywhere in the cone, there is no stationary point, and the
    norm grows without bound. Let r be large and π > 0 small. Weights w_it with a margin under Ŵ above (1 + π)Ξ are
    smaller than that of the support token above by a factor exp(−rπΞ). Those of tokens with higher scores, whose
    margins stay above Ξ, are smaller by a factor that vanishes with r, too. All others have a margin of at most
    (1 + π)Ξ, hence ⟨−∇L, Ŵ⟩ ≤ (1 + 2π)⟨−∇L, D⟩ from some r on. A step changes ⟨W, D⟩ by η⟨−∇L, D⟩, and ‖W‖ by at most
    η⟨−∇L, Ŵ⟩ plus a summable term. So the lower limit of the correlation of W and D is at least 1/(1 + 2π), for every
    π.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), *Max-Margin Token Selection in Attention Mechanism*; Tarzanagh, Li,
    Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*: the theorems on local convergence.

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(2, 3, 4, seed=0)
    >>> cone = attsvm.theory.local_convergence_conditions(problem, attsvm.optimal_tokens(problem), opening=0.05)
    >>> cone.holds, cone.opening
    (True, 0.05)
    >>> start = cone.radius * cone.solution.direction / cone.solution.value
    >>> attsvm.measures.in_cone(start, cone.solution.direction, cone.opening)
    True
    """
    check_is_problem(problem)
    if opening is not None:
        check_number("opening", opening, f"a number between 0 and {WIDEST}", lambda x: 0 < x < WIDEST)
    problem, parsed = parse_margin_loss(problem, loss)
    if (selection_sets(problem, selected) & problem.copies.distinct).sum(axis=-1).max() > 1:
        raise ProblemError("selected: expected one token per query, got sets")
    solution, solved, optimal, tokens, widest = axis_of(problem, selected, parsed)
    openings = several(widest) if opening is None else np.full((1, *widest.shape), float(opening))
    # (H6)
    possible = solved & optimal & (openings < widest)
    radii = least_radius(lambda radius: cones_at(tokens, openings, radius).holds, possible, DOUBLINGS)
    best = np.argmin(radii, axis=0)[None]
    radius, chosen = (np.take_along_axis(x, best, axis=0)[0] for x in (radii, openings))
    holds = np.isfinite(radius)
    cone = cones_at(tokens, chosen, np.where(holds, radius, 1.0))
    gap = np.where(tokens.support, tokens.gap, np.inf).min(axis=(-3, -2, -1))
    return conditions(
        (
            Hypothesis("solved", "the Att-SVM is solved to optimality", solved),
            Hypothesis("locally_optimal", "the selection is locally optimal", optimal),
            Hypothesis("radius", "gradient descent does not leave a cone around the Att-SVM direction", holds, radius),
        ),
        {
            "opening": np.where(holds, chosen, 0.0),
            "longest_step": np.where(holds, cone.longest_step, 0.0),
            "largest_rate": np.where(holds, cone.largest_rate, 0.0),
            "growth": np.where(holds, cone.growth, 0.0),
            "support_gap": gap,
            "widest": np.where(optimal, widest, 0.0),
        },
        solution,
    )


class ConeAxis(NamedTuple):
    """The Att-SVM direction of a selection, and what bounds the cones around it."""

    solution: Solution
    solved: Bool[np.ndarray, "*batch"]
    optimal: Bool[np.ndarray, "*batch"]
    """Whether the selection is locally optimal."""
    tokens: TokenConstants
    widest: Float[np.ndarray, "*batch"]
    """The widest opening."""


def axis_of(problem: Problem, selected: Any, loss: OutputLoss) -> ConeAxis:
    """Solve for the axis of the cones of a problem with labels ±1."""
    solution = solve_svm(problem, selected)
    solved = np.asarray(solution.status) == Status.OPTIMAL
    optimal = np.isfinite(solution.value) & is_locally_optimal(problem, selected, solution.support)
    found = extent(problem, loss)
    # |ℓ'(f)(f − γ_t)| is at most the largest |ℓ'| times the range of the scores
    tokens = _tokens(problem, selected, solution, found.least_slope, found.most_slope * found.spread)
    # ε² = 2 · opening
    return ConeAxis(solution, solved, optimal, tokens, np.minimum(_widest(tokens) ** 2 / 2, WIDEST))


def several(widest: Float[np.ndarray, "*batch"]) -> Float[np.ndarray, "openings *batch"]:
    """Openings of cones of evenly spaced half-widths ε = sqrt(2 · opening)."""
    return np.asarray(np.multiply.outer(FRACTIONS**2, widest))


def _tokens(
    problem: Problem, selected: Any, solution: Solution, least_slope: np.ndarray, weight: np.ndarray
) -> TokenConstants:
    keys, queries, allowed, _ = problem.canonical
    chosen = selection_sets(problem, selected)
    others = allowed & ~chosen
    # m tokens with the key of the selected one share its attention: that of another token is at most exp(−margin)/m
    number = np.maximum(chosen.sum(axis=-1, keepdims=True), 1)
    chosen = chosen & problem.copies.distinct
    gamma = np.where(allowed, scores_of_queries(problem), 0.0)
    core = 2 if problem.has_queries else 1
    # infeasible, or without another token: then there is no cone
    value = np.where(np.isfinite(solution.value) & (np.asarray(solution.value) > 0), solution.value, 1.0)
    # D = W_svm/‖W_svm‖, whose margin is Ξ = 1/‖W_svm‖
    direction = np.nan_to_num(solution.direction) / value.reshape(value.shape + (1,) * core)
    logits = token_logits(problem, direction)
    away = np.einsum("...qt,...tk->...qk", chosen.astype(np.float64), keys)[..., None, :] - keys[..., None, :, :]
    support = solution.support if problem.has_query_axis else solution.support[..., None, :]
    return TokenConstants(
        others,
        support & others,
        np.sum(np.where(chosen, gamma, 0.0), axis=-1, keepdims=True) - gamma,
        np.sum(np.where(chosen, logits, 0.0), axis=-1, keepdims=True) - logits,
        np.linalg.norm(away, axis=-1) * np.linalg.norm(queries, axis=-1)[..., None],
        least_slope[..., None] / number,
        weight[..., None] / number,
        number,
        (1.0 / value)[..., None, None, None],
    )


def _widest(tokens: TokenConstants) -> Float[np.ndarray, "*batch"]:
    """The half-width ε of the widest cone: no margin reaches 0, and those of better tokens stay above Ξ."""
    # a margin changes by at most ε · length, and that of a better token must stay above that of support tokens
    better = tokens.others & ~tokens.support & (tokens.gap <= 0)
    room = tokens.margin - np.where(better, tokens.best_margin, 0.0)
    each = np.divide(room, tokens.length, out=np.full(room.shape, np.inf), where=tokens.others & (tokens.length > 0))
    return np.asarray(np.maximum(each.min(axis=(-3, -2, -1)), 0.0))


def _shape(opening: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """c, s and ε of a cone, with the axes of tokens."""
    m = np.asarray(opening)[..., None, None, None]
    return 1.0 - m, np.sqrt(2.0 * m - m * m), np.sqrt(2.0 * m)


def cones_at(tokens: TokenConstants, opening: np.ndarray, radius: np.ndarray) -> Cones:
    """The cones of these openings and radii. The note ``docs/notes/normalised_descent.md`` has the inequalities."""
    c, s, width = _shape(opening)
    r, best = np.asarray(radius)[..., None, None, None], tokens.best_margin
    # the smallest margin of each token under a unit vector of the cone
    low = np.where(tokens.others, tokens.margin - width * tokens.length, np.inf)
    # attention of each other token is at most exp(−r · margin)/m, which bounds from below what the query loses
    share = np.exp(-np.maximum(r * low, 0.0)) / tokens.number
    deficit = np.sum(np.where(tokens.others, np.maximum(tokens.gap, 0.0) * share, 0.0), axis=-1, keepdims=True)
    # a_selected ≥ 1/(1 + Σ share)
    kept = 1.0 / (1.0 + np.sum(share, axis=-1, keepdims=True))
    # the least weight of a support token in −∇L, over its attention
    pull = np.where(tokens.support, tokens.least_slope * (tokens.gap - deficit) * kept, np.inf)
    pull = pull.min(axis=(-3, -2, -1), keepdims=True)
    pull = np.where(np.isfinite(pull), pull, 0.0)
    better = tokens.others & ~tokens.support & (tokens.gap <= deficit)

    def total(terms: np.ndarray, where: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum(np.where(where, tokens.weight * terms, 0.0), axis=(-3, -2, -1), keepdims=True))

    def below(exponent: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-r * np.where(better, np.maximum(exponent, 0.0), 0.0)))

    # at the boundary: the outward pull of far and of better tokens, against the inward one of support tokens
    bend = best * s**2 / 16
    far = (c / (math.e * r) + bend) * np.exp(-0.75 * r * best * s**2 / c)
    # near the border a support row has m_* ≤ (c + s²/(8c))Ξ, and better rows are smaller by exp(−r · reached)
    reached = low - (c + s**2 / (8 * c)) * best
    outward = total(far * np.ones_like(low), tokens.others)
    outward += total((tokens.length * s + bend) * below(reached), better)
    inward = 0.75 * best * s**2 * pull
    shrinking = total(np.where(better, low, 0.0) * below(low - best), better)
    apart = np.where(better, np.minimum(low - best, reached), np.inf).min(axis=(-3, -2, -1))
    smallest = low.min(axis=(-3, -2, -1))
    # along the axis: the gain of support tokens less the loss of better ones
    gain, rows = best * pull, tokens.others & (tokens.length > 0)
    slowest = np.divide(low, tokens.length, out=np.ones(low.shape), where=rows).min(axis=(-3, -2, -1))
    kept_gain = np.divide(gain - shrinking, gain + shrinking, out=np.zeros(gain.shape), where=gain + shrinking > 0)
    holds = (
        (smallest > 0)  # (H1), with the next line
        & (smallest * np.asarray(radius) >= 1)
        & (apart > 0)  # (H3)
        & (pull > 0)[..., 0, 0, 0]  # (H2)
        & (inward >= outward)[..., 0, 0, 0]  # (H5)
        & (gain > shrinking)[..., 0, 0, 0]  # (H4)
    )
    # the longest step from inside that does not leave the cone, and the rate for the largest gradient there
    length = np.where(tokens.others, tokens.length, 0.0)
    longest = length.max(axis=(-3, -2, -1), keepdims=True)
    # θr with θ = min(s/(16c), Ξs²/(8 max ‖r_j‖))
    step = np.minimum(r * s / (16 * c), r * best * s**2 / (8 * np.where(longest > 0, longest, 1.0)))
    # queries with another token, at most N, so that the rate is on the safe side
    number = tokens.others.any(axis=-1).sum(axis=(-2, -1))[..., None, None, None]
    # N‖∇L‖ ≤ Σ weight_j ‖r_j‖ exp(−r low_j), where exp(−r low_j) = m share_j
    largest = np.sum(tokens.weight * length * share * tokens.number, axis=(-3, -2, -1), keepdims=True)
    with np.errstate(over="ignore"):
        rate = np.divide(step * number, largest, out=np.full(largest.shape, np.inf), where=largest > 0)
    # β = μ_0 (Ξ pull − shrinking)/(Ξ pull + shrinking), (4) of the note
    growth = slowest * kept_gain[..., 0, 0, 0]
    return Cones(np.asarray(holds), np.asarray(radius), step[..., 0, 0, 0], rate[..., 0, 0, 0], growth)
