"""Momentum for any optimizer."""

import optax

from attsvm.optimizers.chain import chain
from attsvm.optimizers.decaying_sum import DecayingSum
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS


def momentum(inner: optax.GradientTransformation, decay: float = 0.9, *, nesterov: bool = False) -> Optimizer:
    """Momentum for any optimizer: it receives m⁺ = β m + ∇L in place of the gradient.

    ``momentum(gradient_descent(η))`` is the heavy ball method. ``momentum(normalized_gradient_descent(η))`` steps along
    the decaying sum of the gradients; the sum is kept with its scale taken out, so it does not underflow.
    ``momentum(steepest_descent(norm="spectral", learning_rate=η))`` is Muon with the exact polar factor.

    Parameters
    ----------
    inner : optax.GradientTransformation
        One of :mod:`attsvm.optimizers` or any of optax's.
    decay : float
        β, 0 ≤ β < 1.
    nesterov : bool
        Pass on β m⁺ + ∇L instead.

    Raises
    ------
    ProblemError
        If ``inner`` is not an optimizer, or has momentum already, or the decay is out of range.

    See Also
    --------
    attsvm.optimizers.normalized

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> from attsvm.optimizers import momentum, normalized_gradient_descent
    >>> heavy = momentum(normalized_gradient_descent(0.1), 0.5)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=heavy, steps=100).optimizer
    'momentum'
    """
    part = DecayingSum(decay, nesterov)
    arguments = {"inner": inner, "decay": part.decay, "nesterov": nesterov}
    return chain(part, inner, name="momentum", arguments=arguments)


OPTIMIZERS.register("momentum", momentum)
