"""Gradient descent with Polyak's step, which depends on a known optimal loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.norms import Lp
from attsvm.optimizers.chain import chain
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scales, Tree, read_number, regrouped
from attsvm.optimizers.sizes import sum_of_squares

Array = jax.Array


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

    See Also
    --------
    attsvm.optimizers.polyak : Makes an optimizer of it.

    Examples
    --------
    >>> from attsvm.optimizers import Polyak, chain
    >>> chain(Polyak(longest=10.0)).norm.name
    'frobenius'
    """

    # numbers are not compared: equal rules share their compiled training
    target: float = field(default=0.0, compare=False)
    longest: float = field(default=np.inf, compare=False)

    def __post_init__(self) -> None:
        target = read_number("target", self.target, "a finite number", lambda x: bool(np.isfinite(x)))
        object.__setattr__(self, "target", target)
        object.__setattr__(self, "longest", read_number("longest", self.longest, "a positive number", lambda x: x > 0))

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

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """−(L − L*)/‖g‖² g, or zero where the loss does not exceed L*."""
        gradient, scales = regrouped(gradient, scales.resolved(gradient), "all")
        (group,) = scales.groups
        size = jnp.sqrt(sum_of_squares(gradient))
        excess = value - numbers["target"]
        moves = (size > 0) & (excess > 0)
        # in logarithms: the gradient may be too small for a float where the excess of the loss is not
        log_length = jnp.log(jnp.where(moves, excess, 1.0)) - group.log - jnp.log(jnp.where(moves, size, 1.0))
        length = jnp.minimum(jnp.exp(log_length), numbers["longest"])
        factor = jnp.where(moves, -length / jnp.where(moves, size, 1.0), 0.0)
        return {name: factor * g for name, g in gradient.items()}, state


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
