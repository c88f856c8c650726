# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""Gradient descent, plain and normalised."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp

from attsvm.contractions import settle
from attsvm.norms import Lp
from attsvm.optimizers.optimizer import Optimizer, Schedule, Step, StepState, read_learning_rate, read_scope
from attsvm.optimizers.scales import Array, Tree, grouped, l2_norm, sum_of_squares


@dataclass(frozen=True)
class GradientDescent:
    """θ − η ∇L, or a step of η‖θ‖ relative to the weights."""

    step: Step
    relative: bool
    scale_free: bool = False

    def init(self, params: Tree) -> StepState:
        return self.step.init(params)

    def update(
        self, gradient: Tree, state: StepState, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, StepState]:
        length, state = self.step.length(state, numbers)
        if self.relative:
            length = length * l2_norm({name: params[name] for name in gradient})
        return {name: -length * jnp.exp(log_scale[name]) * g for name, g in gradient.items()}, state


@dataclass(frozen=True)
class NormalizedGradientDescent:
    """θ − η ∇L/‖∇L‖, one norm over all parameters or one for each."""

    step: Step
    relative: bool
    scope: str
    scale_free: bool = True

    def init(self, params: Tree) -> StepState:
        return self.step.init(params)

    def update(
        self, gradient: Tree, state: StepState, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, StepState]:
        length, state = self.step.length(state, numbers)
        updates: Tree = {}
        for group, _ in grouped(gradient, log_scale, self.scope):
            size = settle(jnp.sqrt(sum_of_squares(group)))
            step = length * l2_norm({name: params[name] for name in group}) if self.relative else length
            # a zero gradient has no direction and moves nothing
            factor = jnp.where(size > 0, -step / jnp.where(size > 0, size, 1.0), 0.0)
            updates |= {name: factor * g for name, g in group.items()}
        return updates, state


def gradient_descent(learning_rate: float | Schedule, *, relative: bool = False) -> Optimizer:
    """Gradient descent: θ − η ∇L(θ).

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    relative : bool
        Whether the step is η‖θ‖ times the gradient.

    Returns
    -------
    Optimizer
        A gradient that underflows is an honest zero: training says ``stalled``.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), Theorem 2; Tarzanagh, Li, Thrampoulidis and Oymak (2023), Theorem 4.
    """
    step, numbers = read_learning_rate(learning_rate)
    arguments = {"learning_rate": learning_rate, "relative": relative}
    return Optimizer(GradientDescent(step, relative), "gradient_descent", Lp(2.0), numbers, arguments)


def normalized_gradient_descent(
    learning_rate: float | Schedule = 0.1, *, scope: Literal["all", "each"] = "all", relative: bool = False
) -> Optimizer:
    """Normalised gradient descent: θ − η ∇L(θ)/‖∇L(θ)‖.

    Exact however small the gradient is: steps go on where the loss is below 1e-300.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    scope : {"all", "each"}
        One norm over all parameters, or one for each.
    relative : bool
        Whether the step is η‖θ‖ long, the norm over the same scope. It cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number, or the scope is unknown.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 5.
    """
    step, numbers = read_learning_rate(learning_rate)
    rule = NormalizedGradientDescent(step, relative, read_scope(scope))
    arguments = {"learning_rate": learning_rate, "scope": scope, "relative": relative}
    return Optimizer(rule, "normalized_gradient_descent", Lp(2.0), numbers, arguments)
