"""The limit of runs with decoupled weight decay: the stationary point next to them in the ball of radius 1/λ."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.errors import ProblemError
from attsvm.losses import Keeps
from attsvm.norms import Lp, Norm, Nuclear, Spectral
from attsvm.optimizers.rule import Chain
from attsvm.optimizers.transformations import LearningRate
from attsvm.optimizers.unit_steps import unit_steps
from attsvm.problem import Problem
from attsvm.results import Status, plain
from attsvm.theory.conditions import Hypothesis, at_worst
from attsvm.theory.constrained import constrained_limit
from attsvm.theory.hypotheses import of_problem
from attsvm.theory.limits import scaled
from attsvm.theory.standing import Judgement, Standing
from attsvm.theory.trained import Trained
from attsvm.training.run import NOT_RECORDED, Run, optimizer_of

ENOUGH = 10.0
"""The sum of rates times decay from which runs were measured to end at the point: exp(−10) of the start is left."""
SETTLED = 1e-2
"""The last rate times the decay: a step moves the weights by about this part of the radius."""
_MEASURED = {"combined": (Lp(2.0), Lp(np.inf), Spectral()), "factored": (Nuclear(), Spectral())}
"""The norms of W in which runs were measured, by the attention."""
SOURCE = "measured in docs/notes/weight_decay.md: runs end at a stationary point of the loss in the ball"


class Decayed(NamedTuple):
    """The point, the Frobenius distance of the weights of the run to it, and how well it is known."""

    point: np.ndarray
    distance: np.ndarray | float
    norm: Norm
    judgement: Judgement


def decayed_limit(problem: Problem, run: Run, trained: Trained, rows: list[Hypothesis]) -> Decayed | None:
    """The point of a run whose decay had the time to act.

    ``rows``: what any prediction assumes. None for runs without decay, with Σηλ < 10, or of another model than a fixed
    linear head, one attention head and a norm of the steps that bounds W.
    """
    decay, norm = run.weight_decay, run.limit.norm
    if isinstance(decay, str) or not decay or norm is None:
        return None
    factored = run.attention == "factored"
    one_head = run.head == "linear" and problem.num_heads is None and problem.num_classes is None and not run.fixed
    fixed_head = problem.head is not None and not trained.trains_head
    fits = one_head and fixed_head and run.keeps is not Keeps.LABEL_COMPONENT and run.penalty == 0
    if not fits or run.attention not in ("combined", "prompt", "factored"):
        return None
    # with few columns the factors are stationary, but their product is not
    bounds_product = norm in (Nuclear(), Spectral()) and run.limit.rank is None
    if run.loss_name in ("custom", NOT_RECORDED) or (factored and not bounds_product):
        return None
    rates = _rates(run)
    if rates is None or float(np.min(rates.total)) * decay < ENOUGH:
        return None
    # the ball of the product has the square of the radius of the factors, in the norm that theirs induces
    power = 2 if factored else 1
    try:
        limit = constrained_limit(problem, radius=decay**-power, norm=norm, start=run, loss=run.loss_name)
    except ProblemError:  # no minimum over balls of this norm
        return None
    core = tuple(range(len(run.batch_shape), run.weights.ndim))
    away = scaled(run.weights, np.asarray(run.log_scale)) - limit.weights
    distance = np.sqrt(np.sum(away**2, axis=core))
    part = distance / np.sqrt(np.sum(limit.weights**2, axis=core))
    hypotheses = [
        *(one for one in rows if one.name not in ("no_decay", "same_norm", "endless_steps")),
        of_problem(problem, run),
        Hypothesis("unit_steps", "steps have length one in the norm, with an exact polar factor", _unit_steps(run)),
        Hypothesis("measured_norm", "such steps were measured in this norm", norm in _MEASURED.get(run.attention, ())),
        at_worst(
            "reach",
            "the rates times the decay add up to at least 10",
            rates.total * decay >= ENOUGH,
            rates.total * decay,
        ),
        Hypothesis(
            "small_last_step",
            "the last rate is at most 0.01 of the radius",
            rates.last * decay <= SETTLED,
            rates.last * decay,
        ),
        at_worst(
            "stationary",
            "the point is stationary",
            np.asarray(limit.status) == Status.CONVERGED,
            limit.gap,
            "relative Frank-Wolfe gap",
            least=False,
        ),
        at_worst(
            "arrived",
            "the weights are within 0.05 of the length of the point",
            part <= 0.05,
            part,
            "is the distance to the point over its length",
            least=False,
        ),
    ]
    failing = {one.name for one in hypotheses if one.holds is False}
    unknown = any(one.holds is None for one in hypotheses)
    # more or shorter steps may still lead there, and so may steps in another norm
    open_end = failing <= {"small_last_step", "arrived", "measured_norm"}
    standing = Standing.NONE if not open_end else Standing.CONJECTURE if failing or unknown else Standing.MEASURED
    source = SOURCE if open_end else "nothing is predicted; the stationary point is for comparison"
    return Decayed(limit.weights, plain(distance), norm, Judgement(standing, source, tuple(hypotheses)))


class _Rates(NamedTuple):
    """The sum of the rates of the steps, shape (*batch_shape,), and the last one."""

    total: np.ndarray
    last: float


def _chain(run: Run) -> Chain | None:
    try:
        rule = optimizer_of(run).rule
    except (ProblemError, AttributeError):
        return None
    return rule if isinstance(rule, Chain) else None


def _rates(run: Run) -> _Rates | None:
    """None if they are not known, or no step was made."""
    chain, steps = _chain(run), np.asarray(run.step)
    parts = [part for part in chain.parts if isinstance(part, LearningRate)] if chain else []
    if len(parts) != 1 or not steps.max(initial=0):
        return None
    schedule: Any = parts[0].schedule
    if schedule is None:
        rate = run.learning_rate
        return _Rates(steps * rate, rate) if isinstance(rate, float) else None
    with jax.enable_x64(True):
        rates = np.asarray(jax.vmap(schedule)(jnp.arange(int(steps.max()))), dtype=np.float64)
    total = np.cumsum(rates)[np.maximum(steps - 1, 0)]
    return _Rates(total, float(rates[int(steps.max()) - 1]))


def _unit_steps(run: Run) -> bool | None:
    """Whether steps are the rate times a D of norm one; of factors, of each of them."""
    chain = _chain(run)
    if chain is None:
        return None
    steps = unit_steps(chain)
    return steps is not None and not (run.attention == "factored" and steps.together)
