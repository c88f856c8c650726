"""The limit of runs with decoupled weight decay: the stationary point next to them in the ball of radius 1/λ."""

from typing import NamedTuple

import numpy as np

from attsvm._utils.extensions import named_by_file
from attsvm.errors import ProblemError
from attsvm.losses import Keeps
from attsvm.norms import MaxOfHeads, Norm, Nuclear, Spectral, SumOfHeads
from attsvm.optimizers import optimizer_of
from attsvm.problem import Problem
from attsvm.results import NOT_RECORDED, Status, plain
from attsvm.theory.conditions import Hypothesis, worst_case
from attsvm.theory.constrained import ConstrainedLimit, constrained_limit
from attsvm.theory.hypotheses import arrived, same_problem
from attsvm.theory.limits import scaled
from attsvm.theory.schedules import rates_of
from attsvm.theory.standing import Judgement, Standing, measured_point
from attsvm.theory.trained import TrainedPart
from attsvm.training import Run

ENOUGH = 10.0
"""The sum of rates times decay from which runs were measured to end at the point: exp(−10) of the start is left."""
SETTLED = 1e-2
"""The last rate times the decay: a step moves the weights by about this part of the radius."""


class Decayed(NamedTuple):
    """The point, the Frobenius distance of the weights of the run to it, and how well it is known."""

    point: np.ndarray
    distance: np.ndarray | float
    norm: Norm
    judgement: Judgement


class _DecayedSteps(NamedTuple):
    """Describe the steps of a run with decay, as far as they are known."""

    norm: Norm  # of each head
    decay: float
    total: np.ndarray  # shape (*batch_shape,), the sum of the rates
    last: float  # the last rate
    unit: bool | None  # whether they have length one in each parameter, or in all of them together
    together: bool


def decayed_limit(problem: Problem, run: Run, trained: TrainedPart, rows: list[Hypothesis]) -> Decayed | None:
    """The point of a run whose decay had the time to act.

    ``rows``: what any prediction assumes. None for runs without decay, with Σηλ < 10, or of another model than fixed
    linear heads and a norm of the steps that bounds W.
    """
    steps = _steps_of(problem, run, trained)
    # of the start Π(1 − ηλ) ≤ exp(−Σηλ) is left
    if steps is None or float(np.min(steps.total)) * steps.decay < ENOUGH:
        return None
    # W − η(λW + D) with N(D) ≤ 1 does not leave the ball of radius 1/λ if ηλ ≤ 1
    norm, radius = steps.norm, 1 / steps.decay
    if run.attention == "factored":
        # N(K) N(Q) ≤ R² bounds the norm of KQ' that theirs induce, and ‖K‖² + ‖Q‖² ≤ R² twice the nuclear norm
        radius = radius**2 / (2 if steps.together else 1)
    try:
        with named_by_file():
            limit = constrained_limit(
                problem, radius=radius, norm=norm, start=run, loss=run.loss_name, together=steps.together
            )
    except ProblemError:  # no minimum over balls of this norm
        return None
    away, lead = scaled(run.weights, np.asarray(run.log_scale)) - limit.weights, len(run.batch_shape)
    distance = np.sqrt(np.sum(away**2, axis=tuple(range(lead, away.ndim))))
    # a head in a ball of its own arrives by itself
    balls = lead if steps.together else lead + len(problem.heads_shape)
    own = tuple(range(balls, away.ndim))
    part = np.sqrt(np.sum(away**2, axis=own) / np.sum(limit.weights**2, axis=own)).max(axis=tuple(range(lead, balls)))
    judgement = _judged(problem, run, rows, steps, limit, part)
    return Decayed(limit.weights, plain(distance), norm, judgement)


def _fits(problem: Problem, run: Run, trained: TrainedPart) -> bool:
    """Whether the loss is that of fixed linear heads alone."""
    fixed_heads = run.head == "linear" and problem.head is not None and problem.num_classes is None
    fixed_heads = fixed_heads and not trained.trains_head and not run.fixed
    decreasing_loss = run.loss_name not in ("custom", NOT_RECORDED) and run.keeps is not Keeps.LABEL_COMPONENT
    known = run.attention in ("combined", "prompt", "factored")
    return fixed_heads and decreasing_loss and known and run.penalty == 0 and run.map == "softmax"


def _judged(
    problem: Problem, run: Run, rows: list[Hypothesis], steps: _DecayedSteps, limit: ConstrainedLimit, part: np.ndarray
) -> Judgement:
    """How well the point is known. ``part``: the distance to it over its length."""
    heads = "one" if problem.num_heads is None else "several"
    # the single parameter of one head without factors has one ball either way
    together = steps.together and (heads == "several" or run.attention == "factored")
    # such runs were measured with a K for each head
    row = measured_point(run.attention, limit.norm, heads, together=together) if problem.key_groups is None else None
    radius, beta = np.max(limit.radius), run.limit.steps.momentum
    measured = row is not None and row.radius[0] <= radius <= row.radius[-1]
    hypotheses = [
        *(one for one in rows if one.name not in ("no_decay", "same_norm", "endless_steps")),
        same_problem(problem, run),
        Hypothesis(
            "unit_steps", "steps have length one in the norm, exactly or by an iteration that converges", steps.unit
        ),
        Hypothesis("measured_radius", "such steps were measured with a ball of this radius", measured, float(radius)),
        Hypothesis("no_momentum", "steps follow the gradient, as measured", None if beta is None else beta == 0, beta),
        worst_case(
            "reach",
            "the rates times the decay add up to at least 10",
            steps.total * steps.decay >= ENOUGH,
            steps.total * steps.decay,
        ),
        Hypothesis(
            "small_last_step",
            "the last rate is at most 0.01 of the radius",
            steps.last * steps.decay <= SETTLED,
            steps.last * steps.decay,
        ),
        worst_case(
            "stationary",
            "the point is stationary",
            np.asarray(limit.status) == Status.CONVERGED,
            limit.gap,
            "relative Frank-Wolfe gap",
            least=False,
        ),
        arrived(part),
    ]
    failing = {one.name for one in hypotheses if one.holds is False}
    unknown = any(one.holds is None for one in hypotheses)
    # more or shorter steps may still lead there, and so may steps with other norms and radii, or with momentum
    if not failing <= {"small_last_step", "arrived", "measured_radius", "no_momentum"}:
        source = "nothing is predicted; the stationary point is for comparison"
        return Judgement(Standing.NONE, source, tuple(hypotheses))
    source = "such steps were not measured" if row is None else row.text()
    standing = Standing.CONJECTURE if failing or unknown else Standing.MEASURED
    return Judgement(standing, f"a stationary point of the loss in the ball: {source}", tuple(hypotheses))


def more_steps(problem: Problem, run: Run, trained: TrainedPart) -> str:
    """Say which steps a run with Σηλ < 10 lacks; empty for others, and where no point is known for longer ones."""
    steps = _steps_of(problem, run, trained)
    if steps is None or not steps.unit or not steps.total.min() > 0:
        return ""
    k = np.argmin(steps.total)
    reached, made = float(np.ravel(steps.total)[k]) * steps.decay, float(np.ravel(run.step)[k])
    if reached >= ENOUGH:
        return ""
    # Σηλ grows in proportion to the steps if the mean rate stays
    more = float(f"{made * (ENOUGH / reached - 1):.2g}")
    return (
        f"; the rates times the decay add up to {reached:.2g}, and to {ENOUGH:g} after about {more:,.0f} more steps of "
        "the same mean rate, from which on a stationary point in the ball of radius 1/λ is predicted"
    )


def _steps_of(problem: Problem, run: Run, trained: TrainedPart) -> _DecayedSteps | None:
    """None without decay or for a model whose points are not known, if the rates are not, or if no step was made."""
    decay, norm = run.weight_decay, run.limit.norm
    if isinstance(decay, str) or not decay or norm is None or not _fits(problem, run, trained):
        return None
    norm = norm.of if isinstance(norm, MaxOfHeads | SumOfHeads) and norm.num_groups is None else norm
    # with few columns the factors are stationary, but their product is not
    if run.attention == "factored" and (norm not in (Nuclear(), Spectral()) or run.limit.rank is not None):
        return None
    try:
        rule = optimizer_of(run).rule
    except (ProblemError, AttributeError):
        return None
    made = np.asarray(run.step)
    if rule.rate is None or not made.max(initial=0):
        return None
    unit = rule.unit_steps()
    known = {"unit": unit is not None, "together": unit is not None and unit.together}
    # a normalisation after the learning rate leaves nothing of it
    rates = rates_of(rule.rate if unit is None else unit.rate, 0, int(made.max()))
    return _DecayedSteps(norm, decay, np.cumsum(rates)[np.maximum(made - 1, 0)], float(rates[-1]), **known)
