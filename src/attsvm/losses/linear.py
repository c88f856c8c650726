"""The linear loss −m, which the papers also call the correlation loss."""

import jax.numpy as jnp

from attsvm.losses.base import Loss
from attsvm.losses.registry import LOSSES

LINEAR = LOSSES.register("linear", Loss(jnp.negative, jnp.zeros_like, "linear", defined_everywhere=True))
LOSSES.register("correlation", LINEAR)
