"""The learning rates of steps, from a number or a schedule."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError

Schedule = float | Callable[[Any], Any]
"""The lengths of steps: a number, or a function of the number of steps before."""


def rates_of(rate: Schedule, first: int, stop: int) -> Float[np.ndarray, " steps"]:
    """The rates of the steps from the first one to the one before ``stop``, as training evaluates them in float64.

    Raises ProblemError if a rate is not finite.
    """
    if not callable(rate):
        return np.full(stop - first, float(rate))
    # training evaluates schedules in float64, whatever the default of JAX is
    with jax.enable_x64(True):
        rates = np.asarray(jax.vmap(rate)(jnp.arange(first, stop)), dtype=np.float64)
    if not np.isfinite(rates).all():
        raise ProblemError("learning_rate: expected a schedule of finite numbers, got NaN or inf")
    return rates
