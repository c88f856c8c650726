# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""Gradient descent with Polyak's step, which a known optimal loss sets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from attsvm.norms import Lp
from attsvm.optimizers.optimizer import Optimizer, read_number
from attsvm.optimizers.scales import Array, Tree, grouped, sum_of_squares


@dataclass(frozen=True)
class Polyak:
    """θ − (L − L*)/‖∇L‖² ∇L."""

    scale_free: bool = True

    def init(self, params: Tree) -> tuple[()]:
        return ()

    def update(
        self, gradient: Tree, state: tuple[()], params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, tuple[()]]:
        ((group, log_common),) = grouped(gradient, log_scale, "all")
        size = jnp.sqrt(sum_of_squares(group))
        excess = value - numbers["target"]
        moves = (size > 0) & (excess > 0)
        # in logarithms: the gradient may be too small for a float where the excess of the loss is not
        log_length = jnp.log(jnp.where(moves, excess, 1.0)) - log_common - jnp.log(jnp.where(moves, size, 1.0))
        length = jnp.minimum(jnp.exp(log_length), numbers["longest"])
        factor = jnp.where(moves, -length / jnp.where(moves, size, 1.0), 0.0)
        return {name: factor * g for name, g in group.items()}, state


def polyak(target: float = 0.0, *, longest: float = np.inf) -> Optimizer:
    """Gradient descent with Polyak's step: θ − (L(θ) − L*)/‖∇L(θ)‖² ∇L(θ), one norm over all parameters.

    Parameters
    ----------
    target : float
        L*, the smallest loss there is; where the loss has reached it nothing moves. Under a fixed head that is the
        mean loss of the optimal tokens, not 0.
    longest : float
        No step is longer. With a target below what the loss can reach, steps grow without bound as the gradient
        vanishes.

    Raises
    ------
    ProblemError
        If an argument is not such a number.

    References
    ----------
    Polyak (1969), *Minimization of unsmooth functionals*; Tarzanagh, Li, Zhang and Oymak (2023), section 5, compare it
    with constant steps.
    """
    numbers = {
        "target": read_number("target", target, "a finite number", lambda x: bool(np.isfinite(x))),
        "longest": read_number("longest", longest, "a positive number", lambda x: x > 0),
    }
    return Optimizer(Polyak(), "polyak", Lp(2.0), numbers, dict(numbers))
