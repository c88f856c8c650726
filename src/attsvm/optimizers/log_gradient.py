"""Descent on the logarithm of the excess of the loss, and its transformation."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from attsvm._utils.keywords import suggests
from attsvm.errors import ProblemError
from attsvm.norms import Lp
from attsvm.optimizers.gradient import GradientDescent
from attsvm.optimizers.optimizer import Optimizer, chain
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import Changed, Numbers, Transformation
from attsvm.optimizers.scaled_gradient import ScaledGradient
from attsvm.optimizers.sizes import Tree
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.transformations import LearningRate
from attsvm.optimizers.unit_steps import Schedule

Array = jax.Array


@dataclass(frozen=True)
class DivideByExcess(Transformation):
    """Divide the gradient by L − L*, exactly, however small both are: it becomes the gradient of log(L − L*)."""

    scale_free = True
    reads_excess = True

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Changed:
        """Subtract the logarithm of the excess from that of the scale."""
        if "log_excess" not in numbers:
            raise ProblemError("log_gradient_descent: only for attsvm.train, which computes the excess of the loss")
        excess = numbers["log_excess"]
        # without an excess there is no gradient
        log = jnp.where(jnp.isneginf(excess), 0.0, excess)
        # ∇L/(L − L*) = g exp(c − log(L − L*))
        resolved = updates.resolved()
        return resolved._replace(scales=tuple(replace(one, log=one.log - log) for one in resolved.scales)), state


@suggests
def log_gradient_descent(learning_rate: float | Schedule = 0.1) -> Optimizer:
    """Gradient descent on the logarithm of the excess: θ − η ∇ log(L − L*) = θ − η ∇L/(L − L*).

    L is the loss of the sequences of the step, and L* that of their optimal tokens, the smallest possible one under a
    fixed linear head. The limits were measured: with all sequences the Att-SVM, on mini-batches the direction of
    largest expected margin of a batch (:func:`attsvm.theory.mini_batch_direction`), if the run selects the optimal
    tokens. Steps do not become shorter as the loss decreases, so that direction needs growing or decaying steps.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If the learning rate is not a number >= 0. In training: if the head is trained or not linear, the loss is
        not one of the margin, there are several attention heads, or there is a penalty. Outside of
        :func:`attsvm.train`, where L* is not known.

    See Also
    --------
    attsvm.optimizers.normalized_gradient_descent, attsvm.theory.mini_batch_direction

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(6, 4, 8, seed=1)
    >>> growing = lambda step: 0.1 * (1 + step / 100)
    >>> descent = attsvm.optimizers.log_gradient_descent(growing)
    >>> run = attsvm.train(problem, optimizer=descent, batch_size=1, steps=5000)
    >>> prediction = attsvm.predict_direction(problem, run)
    >>> bool(attsvm.direction_error(run, prediction) < 1e-4)
    True
    >>> bool(attsvm.direction_error(run, prediction.solution) < 1e-2)  # the Att-SVM
    False
    """
    return chain(
        DivideByExcess(),
        LearningRate(learning_rate),
        GradientDescent(),
        name="log_gradient_descent",
        arguments={"learning_rate": learning_rate},
        steps=Steps("log gradient", Lp(2.0)),
    )


OPTIMIZERS.register("log_gradient_descent", log_gradient_descent)
