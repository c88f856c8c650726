"""The logistic loss log(1 + e^−m)."""

import jax

from attsvm.losses.base import Loss
from attsvm.losses.registry import LOSSES

Array = jax.Array


def _value(margins: Array) -> Array:
    return jax.nn.softplus(-margins)


def _log_slope(margins: Array) -> Array:
    return -jax.nn.softplus(margins)


LOGISTIC = LOSSES.register("logistic", Loss(_value, _log_slope, "logistic", defined_everywhere=True))
