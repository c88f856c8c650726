"""Gradient descent, plain, normalised and with Polyak's step, and its rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import elementwise
from attsvm._utils.keywords import suggests
from attsvm.errors import ProblemError
from attsvm.norms import Lp
from attsvm.optimizers.hyperparameters import check_number, check_positive, is_traced, is_used
from attsvm.optimizers.optimizer import Optimizer, chain
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import NO_VALUE, Moves, Numbers, Rule
from attsvm.optimizers.running_average import normalization
from attsvm.optimizers.scaled_gradient import ScaledGradient
from attsvm.optimizers.sizes import Tree, sum_of_squares
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.transformations import LearningRate, Relative
from attsvm.optimizers.unit_steps import UNKNOWN_LENGTH, GradientLength, Schedule, UnitSteps

Array = jax.Array


@dataclass(frozen=True)
class GradientDescent(Rule):
    """Subtract the gradient: θ⁺ = θ − g. Its norm is ℓ2."""

    on_each_head = False

    @property
    def norm(self) -> Lp:
        return Lp(2.0)

    def unit_steps(self, gradient: GradientLength = UNKNOWN_LENGTH) -> UnitSteps | None:
        """For gradients of ℓ2 norm 1."""
        return UnitSteps(self.norm, gradient.together, gradient.rate) if gradient.unit == self.norm else None

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """Return the step −g."""
        # −η ∇L, or −η ∇L/‖∇L‖ after a normalization: the factor is all but the entries
        factors = updates.factors()
        return {name: elementwise(jnp.multiply, -factors[name], g) for name, g in updates.gradient.items()}, state


@suggests
def gradient_descent(learning_rate: float | Schedule = 0.1, *, relative: bool = False) -> Optimizer:
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
        Where the gradient underflows to zero, training stops with status ``stalled``.

    Raises
    ------
    ProblemError
        If the learning rate is not a number >= 0.

    See Also
    --------
    attsvm.optimizers.normalized_gradient_descent, attsvm.optimizers.polyak

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), Theorem 2; Tarzanagh, Li, Thrampoulidis and Oymak (2023), Theorem 4.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.gradient_descent(1.0)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    return chain(
        *([Relative()] if relative else []),
        LearningRate(learning_rate),
        GradientDescent(),
        name="gradient_descent",
        arguments={"learning_rate": learning_rate, "relative": relative},
        steps=Steps("gradient", Lp(2.0)),
    )


OPTIMIZERS.register("gradient_descent", gradient_descent)


@suggests
def normalized_gradient_descent(
    learning_rate: float | Schedule = 0.1,
    *,
    scope: Literal["all", "each"] = "all",
    relative: bool = False,
    average: float = 0.0,
) -> Optimizer:
    """Normalised gradient descent: θ − η ∇L(θ)/‖∇L(θ)‖.

    Exact however small the gradient is: steps continue where the loss is below 1e-300.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.
    relative : bool
        Whether the step is η‖θ‖ long, the norm over the same scope. Steps cannot leave θ = 0.
    average : float
        β, 0 ≤ β < 1. Where it is not 0, the gradient is divided by the running average of the norms, with the decay β,
        in place of its own norm. For mini-batches: normalisation by the own norm of each batch changes the limit, and
        this average, over several epochs, keeps the Att-SVM.

    Raises
    ------
    ProblemError
        If the learning rate is not a number >= 0, the scope is unknown, or β is out of range.

    See Also
    --------
    attsvm.optimizers.gradient_descent, attsvm.optimizers.polyak

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 5.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.normalized_gradient_descent(0.1)
    >>> attsvm.train(random_problem(3, 4, 5, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    # files of runs without an average have no such argument
    of_average = {"average": average} if is_used(average) else {}
    return chain(
        normalization(scope, average),
        *([Relative(scope)] if relative else []),
        LearningRate(learning_rate),
        GradientDescent(),
        name="normalized_gradient_descent",
        arguments={"learning_rate": learning_rate, "scope": scope, "relative": relative, **of_average},
        steps=Steps("gradient", Lp(2.0), "average" if of_average else "step", scope=scope),
    )


OPTIMIZERS.register("normalized_gradient_descent", normalized_gradient_descent)


@dataclass(frozen=True)
class Polyak(Rule):
    """θ − (L − L*)/‖∇L‖² ∇L, with one norm over all parameters.

    Parameters
    ----------
    target : float
        L*.
    longest : float
        No step is longer.

    Raises
    ------
    ProblemError
        If a number is out of range.
    """

    # numbers are not compared: equal rules share their compiled training
    target: float = field(default=0.0, compare=False)
    longest: float = field(default=np.inf, compare=False)

    on_each_head = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", check_number("target", self.target, "a finite number"))
        unbounded = not is_traced(self.longest) and self.longest == np.inf
        object.__setattr__(self, "longest", np.inf if unbounded else check_positive("longest", self.longest))

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"target": self.target, "longest": self.longest}

    @property
    def norm(self) -> Lp:
        return Lp(2.0)

    @property
    def scale_free(self) -> bool:
        """True: the smaller the gradient, the longer the step."""
        return True

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """−(L − L*)/‖g‖² g, or zero where the loss does not exceed L*."""
        # ‖∇L‖ = exp(c)·size, of all parameters on one scale
        together = updates.resolved().regrouped("all")
        gradient, (scale,) = together.gradient, together.scales
        size = jnp.sqrt(sum_of_squares(gradient))
        if value is None:
            raise ProblemError(NO_VALUE)
        excess = value - numbers["target"]
        moves = (size > 0) & (excess > 0)
        # in logarithms: the gradient may be too small for a float where the excess of the loss is not
        log_length = jnp.log(jnp.where(moves, excess, 1.0)) - scale.log - jnp.log(jnp.where(moves, size, 1.0))
        length = jnp.minimum(jnp.exp(log_length), numbers["longest"])
        # the entries g = ∇L exp(−c) over their own norm are a unit vector
        factor = jnp.where(moves, -length / jnp.where(moves, size, 1.0), 0.0)
        return {name: factor * g for name, g in gradient.items()}, state


@suggests
def polyak(*, target: float = 0.0, longest: float = np.inf) -> Optimizer:
    """Gradient descent with Polyak's step: θ − (L(θ) − L*)/‖∇L(θ)‖² ∇L(θ), one norm over all parameters.

    Parameters
    ----------
    target : float
        L*, the smallest possible loss; there is no step where the loss has reached it. Under a fixed head it is the
        mean loss of the optimal tokens, not 0.
    longest : float
        Largest length of a step. If the target is below the smallest possible loss, steps would otherwise grow without
        bound as the gradient vanishes.

    Raises
    ------
    ProblemError
        If a number is out of range.

    See Also
    --------
    attsvm.optimizers.gradient_descent, attsvm.optimizers.normalized_gradient_descent

    References
    ----------
    Polyak (1969), *Minimization of unsmooth functionals*; Tarzanagh, Li, Zhang and Oymak (2023), section 5, compare it
    with constant steps.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.polyak(longest=0.5)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    rule = Polyak(target, longest)
    return chain(rule, name="polyak", arguments=dict(rule.numbers))


OPTIMIZERS.register("polyak", polyak)
