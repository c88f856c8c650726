"""Runs under maps whose attention becomes exactly one-hot: sparsemax and 1.5-entmax.

From a margin of p = 1/(α − 1) on the loss does not depend on the weights, so that training stops there. With a penalty
λ‖W‖² the weights of least norm with this margin are left, p times the Att-SVM. Let A_it = (x_iα − x_it) z_i', and let
W = Σ μ_it A_it be those of the sparsemax (p = 1), whose support tokens have the margin 1. Where their margins are
1 − ε, the attention is a_t = (ε_t − δ)_+ with δ = Σ a_t, so that Σ μ_t ε_t ≤ Σ a_t (μ_t + Σ_u μ_u). The loss grows by
Σ c_i D_it a_it, c_i = |ℓ'(γ_iα)|/N and D_it = γ_iα − γ_it, and the penalty shrinks by 2λ Σ μ_it ε_it. So W is a local
minimum for

    λ ≤ λ* = min over support tokens of c_i D_it / (2 (μ_it + Σ_u μ_iu)),

exactly so if the A_it of the support tokens are linearly independent. For p = 2 the attention is about (ε/2)² instead,
which the penalty always outweighs: the minimum has margins of about 2 − 8λ μ_it/(c_i D_it).
"""

from typing import NamedTuple

import numpy as np

from attsvm._utils.extensions import named_by_file
from attsvm.losses import OutputLoss, parse_loss
from attsvm.problem import Problem
from attsvm.results import NOT_RECORDED, plain
from attsvm.selection import better_support_tokens, scores, selection_sets
from attsvm.svm import Solution, solve_svm
from attsvm.theory.conditions import Hypothesis, at_most, worst_case
from attsvm.theory.hypotheses import arithmetic_hypotheses, arrived, constant_rate, same_problem, separable
from attsvm.theory.limits import penalised_minimiser, scaled
from attsvm.theory.measured import Row, table
from attsvm.theory.smoothness import derivatives
from attsvm.theory.standing import EUCLIDEAN, Judgement, Standing
from attsvm.theory.trained import TrainedPart
from attsvm.training import AttentionMap, Run

NEAR_SVM = 0.05
"""The distance of the minimum under 1.5-entmax to twice the Att-SVM, over its length, up to which λ counts as small."""
ONE_HOT = 0.05
"""The largest attention of a dropped token of a run that counts as one-hot."""


ROUNDED = 1e-6
"""The relative rounding of λ/λ* at the ends of the range of a row."""


class OneHotLimit(NamedTuple):
    """The Att-SVM, the point, the distance of the weights of the run to it, and how well it is known."""

    solution: Solution
    point: np.ndarray | None
    distance: float | np.ndarray | None
    judgement: Judgement


def one_hot_limit(
    problem: Problem, run: Run, part: TrainedPart, of: AttentionMap, rows: list[Hypothesis]
) -> OneHotLimit:
    """The limit of a run under a map that is one-hot from a margin on. ``rows``: what every prediction assumes."""
    solution = solve_svm(part.problem, run.selected, norm=EUCLIDEAN)
    kept = [one for one in rows if one.name not in ("no_penalty", "same_norm")]
    penalty = run.penalty if isinstance(run.penalty, float | int) else None
    by_penalty = Hypothesis(
        "penalty", "a penalty is added to the loss", None if penalty is None else penalty > 0, penalty
    )
    if penalty is None:
        source = "it is not recorded whether a penalty was added; the Att-SVM is for comparison"
        return OneHotLimit(solution, None, None, Judgement(Standing.NONE, source, (*kept, by_penalty)))
    if not penalty:
        source = (
            f"without a penalty, training under {run.map} stops at the first weights whose margins are all at least "
            f"{of.one_hot_margin:g}, which depend on the path; the Att-SVM is for comparison"
        )
        return OneHotLimit(solution, None, None, Judgement(Standing.NONE, source, (*kept, by_penalty)))
    models = _models(problem, run, part)
    kept = [*kept, same_problem(problem, run), by_penalty, models, separable(solution)]
    loss = _loss_of(run) if models.holds else None
    if loss is None:
        source = (
            f"under {run.map} with a penalty the limit is known for W or p of one attention head without offsets, a "
            "fixed linear head, labels ±1 and a loss that is known; the Att-SVM is for comparison"
        )
        return OneHotLimit(solution, None, None, Judgement(Standing.NONE, source, tuple(kept)))
    lead, svm = len(run.batch_shape), of.one_hot_margin * solution.direction
    own = tuple(range(lead, svm.ndim))
    length = np.sqrt(np.sum(svm**2, axis=own))
    kept += _at_the_selection(problem, run, of, solution)
    if of.name == "sparsemax":
        most = largest_penalty(problem, run, solution, loss)
        measured, point = penalty / np.where(most > 0, most, np.nan), svm
        statement = "the penalty is at most λ*, so that the Att-SVM is a local minimum"
        kept.append(at_most("small_penalty", statement, measured, 1.0, "is λ/λ*"))
    else:
        found = penalised_minimiser(problem, run)
        assert found is not None, "the models of this limit are those of the minimiser"
        point, measured = found.point, np.sqrt(np.sum((found.point - svm) ** 2, axis=own)) / length
        kept += [one for one in found.hypotheses if one.name == "stationary"]
        kept.append(at_most("near_svm", f"the minimum is within {NEAR_SVM:g} of twice the Att-SVM", measured, NEAR_SVM))
    away = np.sqrt(np.sum((scaled(run.weights, np.asarray(run.log_scale)) - point) ** 2, axis=own))
    relative = away / np.maximum(length, np.finfo(float).tiny)
    kept += [*arithmetic_hypotheses(problem, run, relative), arrived(relative)]
    judgement = _judged(run, part, of.name, kept, measured)
    if judgement.standing is Standing.NONE:
        return OneHotLimit(solution, None, None, judgement)
    return OneHotLimit(solution, point, plain(away), judgement)


def largest_penalty(problem: Problem, run: Run, solution: Solution, loss: OutputLoss) -> np.ndarray:
    """λ* of each trial: the largest penalty under which the Att-SVM is known to be a local minimum of the sparsemax."""
    gamma = np.broadcast_to(scores(problem), (*run.selected.shape, problem.num_tokens))
    active = run.selected >= 0
    own = np.take_along_axis(gamma, np.maximum(run.selected, 0)[..., None], axis=-1)
    axes = tuple(range(len(run.batch_shape), active.ndim))
    outputs = np.where(active, own[..., 0], 0.0)
    slope = np.abs(derivatives(loss, outputs.ravel())[0]).reshape(outputs.shape)
    cost = slope / active.sum(axis=axes, keepdims=True)
    # the dual of the norm has W = ‖W‖ Σ λ_it A_it
    mu = solution.dual * np.asarray(solution.value)[(..., *(None,) * (solution.dual.ndim - len(run.batch_shape)))]
    weight = 2.0 * (mu + mu.sum(axis=-1, keepdims=True))
    gain = cost[..., None] * np.where(np.isfinite(gamma), own - gamma, 0.0)
    # a support token without a multiplier, of a query without any, bounds nothing unless it is better
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(weight > 0, gain / weight, np.where(gain < 0, 0.0, np.inf))
    ratio = np.where(solution.support & active[..., None], ratio, np.inf)
    found: np.ndarray = np.maximum(ratio.min(axis=(*axes, ratio.ndim - 1)), 0.0)
    return found


def _models(problem: Problem, run: Run, part: TrainedPart) -> Hypothesis:
    linear = run.head == "linear" and problem.head is not None and problem.num_classes is None and not part.trains_head
    known = linear and problem.num_heads is None and run.attention in ("combined", "prompt") and not run.fixed
    # the weights stay finite, so that offsets change the margins that they need
    known = known and problem.offsets is None
    statement = "W or p of one attention head without offsets is trained, with a fixed linear head"
    return Hypothesis("known_model", statement, known)


def _loss_of(run: Run) -> OutputLoss | None:
    if run.loss_name in ("custom", NOT_RECORDED):
        live: OutputLoss | None = run.live_loss
        return live
    with named_by_file():
        return parse_loss(run.loss_name, None)


def _at_the_selection(problem: Problem, run: Run, of: AttentionMap, solution: Solution) -> list[Hypothesis]:
    """State that each query has one token, which is better than its support tokens and alone with its key."""
    sets = selection_sets(problem, run.selected)
    copied = np.any(sets & (problem.copies.number > 1), axis=(-3, -2, -1))
    worse = better_support_tokens(problem, run.selected, solution.support).sum(axis=-1)
    attention = of.attention_of(problem, scaled(run.weights, np.asarray(run.log_scale)))
    dropped = np.where(problem.canonical.allowed & ~sets, attention, 0.0).max(axis=(-3, -2, -1))
    return [
        worst_case("single_keys", "no other token has the key of a selected one", ~copied, np.nan),
        at_most("locally_optimal", "the selection is locally optimal", worse, 0, "better support tokens"),
        at_most(
            "one_hot", f"the attention is one-hot, up to {ONE_HOT:g}", dropped, ONE_HOT, "largest dropped attention"
        ),
    ]


def _judged(run: Run, part: TrainedPart, name: str, hypotheses: list[Hypothesis], measured: np.ndarray) -> Judgement:
    """Look for a measurement. Descent to the local minimum is not proved: its steps are not those of a smooth loss."""
    # a smooth minimum is the limit wherever it is; the Att-SVM only if it is a local minimum
    limit, where = "the Att-SVM itself, a local minimum of loss plus penalty", {"one_hot", "arrived", "last_step_moved"}
    if name != "sparsemax":
        limit = "the minimum of loss plus penalty, next to twice the Att-SVM"
        where |= {"single_keys", "separable", "locally_optimal", "near_svm"}
    failing = [one for one in hypotheses if one.holds is False and one.name not in where]
    if failing:
        source = f"nothing is predicted: {failing[0]}; the Att-SVM is for comparison"
        return Judgement(Standing.NONE, source, tuple(hypotheses))
    row = next((row for row in table() if row.map == name and row.penalty and _same_steps(run, part, row)), None)
    if row is None:
        return Judgement(Standing.CONJECTURE, f"{limit}; such steps were not measured", tuple(hypotheses))
    within = _within(run, row, measured)
    standing = Standing.MEASURED if all(one.holds for one in (*hypotheses, *within)) else Standing.CONJECTURE
    yet = [one for one in (*hypotheses, *within) if not one.holds]
    why = f"{yet[0]}; " if yet else ""
    return Judgement(standing, f"{limit}: {why}{row.text()}", (*hypotheses, *within))


def _same_steps(run: Run, part: TrainedPart, row: Row) -> bool:
    return (row.steps, row.attention) == (run.limit.steps.family, part.attention) and run.limit.steps.momentum == 0


def _within(run: Run, row: Row, measured: np.ndarray) -> list[Hypothesis]:
    """State that the run is within the range of a row."""
    (fewest, most), (least, largest) = row.num_steps, row.penalty
    made, steps = np.ravel(run.step), run.limit.steps
    enough = bool((made >= fewest).all())
    rows = [
        Hypothesis(
            "measured_steps",
            f"the run made {fewest:,} to {most:,} steps, as measured",
            enough and bool((made <= most).all()),
            float(made.max() if enough else made.min()),
            "steps",
        ),
    ]
    if row.map == "sparsemax":
        statement = "the learning rates decay like 1/k, as measured"
        rows.append(Hypothesis("shrinking_steps", statement, steps.power == 1.0, steps.power))
    else:
        rows.append(constant_rate(run, "gradient"))
    what = "λ/λ*" if row.map == "sparsemax" else "the distance to twice the Att-SVM"
    statement = f"{what} is {least:.2g} to {largest:.2g}, as measured"
    inside = (least * (1 - ROUNDED) <= measured) & (measured <= largest * (1 + ROUNDED))
    return [*rows, worst_case("measured_penalty", statement, inside, measured)]
