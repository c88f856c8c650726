"""Limits of runs that are not the Att-SVM of the selected tokens.

With the token loss the components of the labels are kept (:func:`label_components`). With a trained prediction head
queries may be relaxed (:func:`joint_direction`), and with a penalty the weights stay finite
(:func:`penalised_minimiser`).
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from attsvm._utils.extensions import named_by_file
from attsvm._utils.shapes import Bool
from attsvm.losses import parse_loss
from attsvm.next_token import ProblemGraph
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.results import Status, plain
from attsvm.svm import Solution, solve_head, solve_svm
from attsvm.theory.conditions import Hypothesis, at_most, is_feasible, worst_case
from attsvm.theory.hypotheses import BUILT_IN, arithmetic_hypotheses, arrived, constant_rate, same_problem
from attsvm.theory.joint import least_score_gap
from attsvm.theory.smoothness import lipschitz_constant
from attsvm.theory.standing import EUCLIDEAN, Judgement, Standing, rank_for
from attsvm.theory.trained import TrainedPart
from attsvm.training import LossGradient, Run, parse_attention

FEWEST = 3
"""Records that a trend needs."""
TREND = 0.1
"""Two radii grow at the same rate if their ratio changes by less than this power of the number of steps."""
STATIONARY = 1e-6
"""A point θ is stationary if its gradient is below this part of 2λ(1 + ‖θ‖)."""


class LabelComponents(NamedTuple):
    """The kept sets of the graph-SVM, the finite part for the ℓ2 norm, and whether a graph has a cycle."""

    selected: Bool[np.ndarray, "*queries T"]
    finite: np.ndarray | None
    cyclic: bool


def label_components(problem: Problem, run: Run, part: TrainedPart, used: Norm) -> LabelComponents:
    """Read off the graphs of the problems what they predict for a run, in its trained parameters ``part``.

    Raises ProblemError if equal tokens have different keys, or a context does not contain its label.
    """
    batch = problem.batch_shape
    graphs = {index: ProblemGraph.of(problem[index] if batch else problem) for index in np.ndindex(batch)}
    first = next(iter(graphs.values()))
    selected = np.empty((*batch, *first.shape), bool)
    finite = np.zeros((*batch, *part.history.shape[1 + len(run.batch_shape) :]))
    for index, graph in graphs.items():
        # the graph depends on tokens and labels alone, so that all trials of a problem keep the same sets
        selected[index] = graph.kept()
        minimiser = graph.finite_minimiser(part.problem[index] if batch else part.problem)
        finite[index] = minimiser.weights.reshape(finite.shape[len(batch) :])
    return LabelComponents(
        np.broadcast_to(selected, (*run.batch_shape, *first.shape)),
        np.broadcast_to(finite, (*run.batch_shape, *finite.shape[len(batch) :])) if used == EUCLIDEAN else None,
        any(graph.graph.is_cyclic for graph in graphs.values()),
    )


class JointLimit(NamedTuple):
    """The Att-SVM, relaxed or plain, the max-margin head, and what was assumed."""

    solution: Solution
    head: Solution
    relaxed: Bool[np.ndarray, "*queries"]
    hypotheses: list[Hypothesis]


def joint_direction(problem: Problem, run: Run, part: TrainedPart, used: Norm) -> JointLimit:
    """Solve the relaxed Att-SVM if the radius of the head grows faster than that of the attention, else the plain one.

    ``part`` is the run in its trained parameters.
    """
    head = solve_head(problem, run.selected, _norm_of_head(part, used))
    active = np.broadcast_to(problem.canonical.active, (*run.batch_shape, *problem.canonical.active.shape[-2:]))
    active = active.reshape(run.selected.shape)
    own = tuple(range(len(run.batch_shape), active.ndim))
    solved = np.asarray(head.status) == Status.OPTIMAL
    slack = active & ~head.support & np.expand_dims(solved, own)
    # where r of the head grows faster than R, labels with slack do not hold the attention back
    trend = _radius_trend(run, part, used)
    # the joint path with r/R → ∞: the Att-SVM asks a margin of 0 of queries whose label has slack
    relaxed = slack & np.expand_dims(trend > TREND, own)
    solution = solve_svm(part.problem, run.selected, norm=used, relaxed=relaxed, rank=rank_for(run, used))
    # for radii that grow alike neither Att-SVM is known to be the limit; without slack both are the same
    settled = ~slack.any(axis=own) | (np.abs(trend) > TREND)
    by_head, from_others = is_feasible(head), is_feasible(solution)
    # 0 if one of both is infeasible, NaN if one is not decided and the other is not infeasible
    separable = np.where((by_head == 0) | (from_others == 0), 0.0, by_head * from_others)
    gap = least_score_gap(problem, run.selected, head, slack)
    rows = [
        worst_case(
            "separable", "the selected tokens can be separated, by the head and from the others", separable, head.value
        ),
        worst_case(
            "best_for_head",
            "the selected tokens are the best for the max-margin head",
            gap > 0,
            gap,
            "least gap of scores",
        ),
        worst_case(
            "one_grows_faster",
            "the radius of the head grows faster than that of the attention or the other way round, or no label has "
            "slack",
            settled,
            np.where(slack.any(axis=own), np.abs(trend), np.inf),
            "power of the steps",
        ),
    ]
    return JointLimit(solution, head, relaxed, rows)


def _norm_of_head(part: TrainedPart, norm: Norm) -> Norm:
    """The norm in which v is short: for W that of its columns, for products of parameters that of the steps."""
    return EUCLIDEAN if part.attention in ("gain", "rotary") else norm.of_vectors


def _radius_trend(run: Run, part: TrainedPart, norm: Norm) -> np.ndarray:
    """Slope of log(r/R) against log(step) in the last decade of steps of a trial: r of v, R of the attention."""
    steps = run.history["steps"]
    heads = _norm_of_head(part, norm).values(run.history["v"], 1).reshape(len(steps), -1)
    weights = norm.values(part.history, 2 if part.problem.has_queries else 1).reshape(len(steps), -1)
    # what was taken out of weights that are too long for a float
    log_scale = run.history["log_scale"].reshape(len(steps), -1)
    last = np.broadcast_to(run.step, run.batch_shape).reshape(-1)
    trend = np.zeros(last.size)
    for i in range(last.size):
        # later records repeat the last weights of a trial that stopped
        late = (steps >= last[i] / 10) & (steps <= last[i]) & (steps > 0) & (heads[:, i] > 0) & (weights[:, i] > 0)
        if late.sum() >= FEWEST:
            # log(r/R) = trend · log k + const by least squares
            radii = np.log(heads[late, i] / weights[late, i]) - log_scale[late, i]
            trend[i] = np.polyfit(np.log(steps[late]), radii, 1)[0]
    return trend.reshape(run.batch_shape)


class Minimiser(NamedTuple):
    """The weights of the minimiser, their distance from those of the run, and what was checked."""

    point: np.ndarray
    distance: np.ndarray | float
    hypotheses: tuple[Hypothesis, ...]


def penalised_minimiser(problem: Problem, run: Run) -> Minimiser | None:
    """The minimum of L + λ‖θ‖² that descent from the parameters of the run reaches.

    None for models whose objective is more than the loss of a fixed linear head (trained heads, several attention
    heads, fixed parameters), and for runs whose loss is not known.
    """
    layer = parse_attention(run.attention, problem, None)
    names = [name for name in run.parameters if name in layer.shapes(problem)]
    trained_head = any(name in run.history for name in run.parameters if name not in names)
    loss = run.live_loss if run.loss_name == "custom" else run.loss_name
    fits = run.head == "linear" and problem.num_heads is None and problem.head is not None
    if not fits or run.fixed or trained_head or loss is None or isinstance(run.penalty, str):
        return None
    with named_by_file():
        loss = parse_loss(loss, problem.num_classes)
    batch = run.batch_shape
    # the scale is that of the product of all factors, so that each of m factors has its m-th root
    first = {name: scaled(run.parameters[name], np.asarray(run.log_scale) / layer.num_factors(names)) for name in names}
    lead = len(batch) - len(problem.batch_shape)
    point, residual = np.empty_like(run.weights), np.zeros(batch)
    # descent from the parameters of each trial
    for index in np.ndindex(*batch):
        one = problem[index[lead:]] if problem.batch_shape else problem
        gradient_at = LossGradient(one, run.attention, loss, map=run.map)
        found, residual[index] = _descend(gradient_at, {name: x[index] for name, x in first.items()}, run.penalty)
        point[index] = layer.weights(found)
    core = tuple(range(len(batch), point.ndim))
    away = scaled(run.weights, np.asarray(run.log_scale)) - point
    rows = [
        at_most("stationary", "the point is stationary", residual, STATIONARY, "of 2λ(1 + ‖θ‖)"),
        same_problem(problem, run),
    ]
    # lipschitz_constant is for one matrix, labels ±1 and softmax of k'Wz; the curvature in K and Q has no bound
    simple = run.map == "softmax" and not problem.other_terms
    if len(names) == 1 and problem.num_classes is None and simple and run.loss_name in BUILT_IN:
        # the loss has curvatures between −smooth and smooth, and L + λ‖θ‖² between 2λ − smooth and 2λ + smooth
        smooth = np.asarray(lipschitz_constant(problem, run.loss_name))
        rate = run.limit.steps.learning_rate
        rows += [
            worst_case(
                "one_minimiser",
                "2λ exceeds the curvature L of the loss, so there is one minimiser",
                2 * run.penalty > smooth,
                smooth / (2 * run.penalty),
                "is L/2λ",
                least=False,
            ),
            constant_rate(run, "gradient"),
        ]
        if rate is not None:
            # gradient descent on a convex function converges for rates below 2 over its largest curvature
            together = rate * (smooth + 2 * run.penalty)
            rows.append(
                worst_case(
                    "rate_of_loss",
                    "the learning rate is below 2/(L + 2λ)",
                    together < 2,
                    together,
                    "rate · (L + 2λ)",
                    least=False,
                )
            )
    else:
        rows.append(Hypothesis("one_minimiser", "there is one minimiser", None))
    return Minimiser(point, plain(np.sqrt(np.sum(away**2, axis=core))), tuple(rows))


def judge_penalised(problem: Problem, run: Run, limit: Minimiser | None, rows: list[Hypothesis]) -> Judgement:
    """How well the minimiser of loss plus penalty is known to be the limit."""
    if limit is None:
        source = (
            "a penalty keeps the weights finite; the limit is computed for a fixed linear head, one attention head "
            "whose parameters are all trained, and a loss that is known"
        )
        return Judgement(Standing.NONE, source, tuple(rows))
    # these two rows are about the Att-SVM, which is not the limit here
    kept = [one for one in rows if one.name not in ("no_penalty", "same_norm")]
    own = tuple(range(len(run.batch_shape), limit.point.ndim))
    part = np.asarray(limit.distance) / np.maximum(np.sqrt(np.sum(limit.point**2, axis=own)), np.finfo(float).tiny)
    near = arrived(part)
    hypotheses = (*kept, *limit.hypotheses, *arithmetic_hypotheses(problem, run, part), near)
    source = "descent to the minimiser of loss plus penalty"
    if all(one.holds for one in hypotheses):
        return Judgement(Standing.PROVED, f"{source}: gradient descent on a convex function", hypotheses)
    # with decay the limit is another point, and steps on mini-batches do not settle in one
    stationary = [one for one in limit.hypotheses if one.name == "stationary"]
    settles = all(one.holds is not False for one in (*kept, *stationary))
    source = source if near.holds else f"not there yet: {near}; {source}"
    return Judgement(Standing.CONJECTURE if settles else Standing.NONE, source, hypotheses)


def scaled(x: np.ndarray, log_scale: np.ndarray) -> np.ndarray:
    """Arrays times exp(log_scale), whose axes are the first ones."""
    return np.asarray(x * np.exp(log_scale).reshape(*log_scale.shape, *(1,) * (x.ndim - log_scale.ndim)))


def _descend(
    gradient_at: LossGradient, start: dict[str, np.ndarray], penalty: float
) -> tuple[dict[str, np.ndarray], float]:
    shapes = {name: x.shape for name, x in start.items()}
    ends = np.cumsum([x.size for x in start.values()])

    def split_parts(flat: np.ndarray) -> dict[str, np.ndarray]:
        parts = np.split(flat, ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient, log_scale = gradient_at.with_value({name: x[None] for name, x in split_parts(flat).items()})
        # ∇(L + λ‖θ‖²) = ∇L + 2λθ, where ∇L comes with the logarithm of its scale
        slope = np.exp(log_scale[0]) * np.concatenate([gradient[name].ravel() for name in shapes])
        return float(value[0] + penalty * flat @ flat), slope + 2 * penalty * flat

    flat = np.concatenate([x.ravel() for x in start.values()])
    found = minimize(
        objective,
        flat,
        jac=True,
        # BFGS keeps a dense inverse Hessian, which costs too much for many numbers
        method="BFGS" if flat.size <= 500 else "L-BFGS-B",
        options={"gtol": 1e-12, "maxiter": 5000},
    )
    # a distance to stationarity without units: 2λ(1 + ‖θ‖) is about the gradient of the penalty
    slope = np.linalg.norm(objective(found.x)[1])
    return split_parts(found.x), float(slope / (2 * penalty * (1 + np.linalg.norm(found.x))))
