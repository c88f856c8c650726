"""The steps with which directions converge."""

from functools import cache

import jax.numpy as jnp

from attsvm.optimizers import Optimizer, normalized_gradient_descent


@cache  # programs compiled for it are reused
def limit_optimizer(attention: str, steps: int) -> Optimizer:
    """The optimiser whose direction converges: growing steps for W, and steps relative to the joint norm for (K, Q).

    The direction error of W falls like 1/‖W‖, so growing steps need fewer of them. The relative ones shrink by quarters
    of the run, because the factors' norms grow until the logits' rounding makes every step a choice of one support
    token.
    """
    if attention == "combined":
        return normalized_gradient_descent(lambda step: 0.1 * (1 + step / 100))
    ends = [steps * part / 4 for part in (1, 2, 3)]
    return normalized_gradient_descent(
        lambda step: jnp.select([step < end for end in ends], [1e-2, 3e-3, 1e-3], 1e-4), relative=True
    )
