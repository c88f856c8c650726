"""The exponential loss e^−m."""

import jax
import jax.numpy as jnp

from attsvm.losses.base import Loss
from attsvm.losses.registry import LOSSES

Array = jax.Array


def _value(margins: Array) -> Array:
    return jnp.exp(-margins)


EXPONENTIAL = LOSSES.register("exponential", Loss(_value, jnp.negative, "exponential", defined_everywhere=True))
