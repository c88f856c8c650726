"""The finite limit of a run with a penalty: the minimiser of loss plus penalty next to it."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from attsvm.optimizers.limit import Limit
from attsvm.problem import Problem
from attsvm.results import plain
from attsvm.theory.conditions import Hypothesis, at_worst
from attsvm.theory.hypotheses import BUILT_IN, constant_rate, of_problem
from attsvm.theory.smoothness import lipschitz_constant
from attsvm.training.attention import parse_attention
from attsvm.training.gradient import LossGradient
from attsvm.training.run import Run

STATIONARY = 1e-6
"""A point θ is stationary if its gradient is below this part of 2λ(1 + ‖θ‖)."""


class Minimiser(NamedTuple):
    """The weights of the minimiser, their distance from those of the run, and what was checked."""

    point: np.ndarray
    distance: np.ndarray | float
    hypotheses: tuple[Hypothesis, ...]


def penalised_minimiser(problem: Problem, run: Run, known: Limit) -> Minimiser | None:
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
    batch = run.batch_shape
    first = {name: _scaled(run.parameters[name], np.asarray(run.log_scale) / len(names)) for name in names}
    lead = len(batch) - len(problem.batch_shape)
    point, residual = np.empty_like(run.weights), np.zeros(batch)
    for index in np.ndindex(*batch):
        one = problem[index[lead:]] if problem.batch_shape else problem
        gradient_at = LossGradient(one, run.attention, loss)
        found, residual[index] = _descend(gradient_at, {name: x[index] for name, x in first.items()}, run.penalty)
        point[index] = layer.weights(found)
    core = tuple(range(len(batch), point.ndim))
    away = _scaled(run.weights, np.asarray(run.log_scale)) - point
    rows = [
        at_worst(
            "stationary", "the point is stationary", residual <= STATIONARY, residual, "of 2λ(1 + ‖θ‖)", least=False
        ),
        of_problem(problem, run),
    ]
    if len(names) == 1 and problem.num_classes is None and run.loss_name in BUILT_IN:
        smooth = np.asarray(lipschitz_constant(problem, run.loss_name))
        rate = run.learning_rate if isinstance(run.learning_rate, float) else None
        rows += [
            at_worst(
                "one_minimiser",
                "2λ exceeds the curvature L of the loss, so there is one minimiser",
                2 * run.penalty > smooth,
                smooth / (2 * run.penalty),
                "is L/2λ",
                least=False,
            ),
            constant_rate(run, "gradient descent", known),
        ]
        if rate is not None:
            together = rate * (smooth + 2 * run.penalty)
            rows.append(
                at_worst(
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


def _scaled(x: np.ndarray, log_scale: np.ndarray) -> np.ndarray:
    return np.asarray(x * np.exp(log_scale).reshape(*log_scale.shape, *(1,) * (x.ndim - log_scale.ndim)))


def _descend(
    gradient_at: LossGradient, start: dict[str, np.ndarray], penalty: float
) -> tuple[dict[str, np.ndarray], float]:
    shapes = {name: x.shape for name, x in start.items()}
    ends = np.cumsum([x.size for x in start.values()])

    def apart(flat: np.ndarray) -> dict[str, np.ndarray]:
        parts = np.split(flat, ends[:-1])
        return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient, log_scale = gradient_at.with_value({name: x[None] for name, x in apart(flat).items()})
        slope = np.exp(log_scale[0]) * np.concatenate([gradient[name].ravel() for name in shapes])
        return float(value[0] + penalty * flat @ flat), slope + 2 * penalty * flat

    flat = np.concatenate([x.ravel() for x in start.values()])
    found = minimize(
        objective,
        flat,
        jac=True,
        method="BFGS" if flat.size <= 500 else "L-BFGS-B",
        options={"gtol": 1e-12, "maxiter": 5000},
    )
    slope = np.linalg.norm(objective(found.x)[1])
    return apart(found.x), float(slope / (2 * penalty * (1 + np.linalg.norm(found.x))))
