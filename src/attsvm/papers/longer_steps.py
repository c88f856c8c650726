"""Normalised steps that are longer for some parameters: figures in which one radius outgrows another."""

from functools import cache
from typing import Any

import jax.numpy as jnp
import optax

from attsvm.norms import Lp
from attsvm.optimizers import Optimizer, chain


@cache
def longer_steps(length: float, name: str, power: float) -> Optimizer:
    """Descent whose step k has a length for each parameter, times (1 + k/50)^power for the one of this name."""

    def update(gradient: Any, step: Any, params: Any = None, *, log_scale: Any, **_: Any) -> tuple[Any, Any]:
        # entries near 1, whose scale the norm divides out
        norms = {key: jnp.sqrt(jnp.sum(g * g)) for key, g in gradient.items()}
        longer = {key: (1 + step / 50) ** power if key == name else 1.0 for key in gradient}
        moves = {
            key: jnp.where(norms[key] > 0, -length * longer[key] / jnp.where(norms[key] > 0, norms[key], 1.0), 0.0) * g
            for key, g in gradient.items()
        }
        return moves, step + 1

    rule = optax.GradientTransformationExtraArgs(lambda params: jnp.zeros(()), update)
    return chain(rule, name="longer_steps", norm=Lp(2.0))
