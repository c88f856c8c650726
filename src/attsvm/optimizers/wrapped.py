"""Any optimizer with momentum, or on the normalized gradient."""

from typing import Literal

import optax

from attsvm.norms import Norm, parse_norm
from attsvm.optimizers.chain import chain
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.transformations import DecayingSum, Normalize


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


def normalized(
    inner: optax.GradientTransformation,
    *,
    scope: Literal["all", "each"] = "all",
    norm: str | float | Norm | None = None,
) -> Optimizer:
    """Any optimizer on the normalized gradient ∇L/‖∇L‖.

    The gradient is normalized exactly however small it is: ``normalized(optax.adam(1e-2))`` continues where the
    gradient itself underflows, and its epsilon stays small compared with the gradient.

    Parameters
    ----------
    inner : optax.GradientTransformation
        One of :mod:`attsvm.optimizers` or any of optax's.
    scope : {"all", "each"}
        One ℓ2 norm over all parameters, those of all attention heads together, or one for each of each head.
    norm : str, float or Norm, optional
        The norm whose Att-SVM the optimizer is compared with; by default that of ``inner``, unknown for optax's.

    Raises
    ------
    ProblemError
        If ``inner`` is not an optimizer, or the scope or the norm is unknown.

    See Also
    --------
    attsvm.optimizers.momentum, attsvm.optimizers.Normalize

    Examples
    --------
    >>> import attsvm, optax
    >>> from attsvm.datasets import random_problem
    >>> lion = attsvm.optimizers.normalized(optax.lion(1e-2), norm="linf")
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=lion, steps=100).norm.name
    'linf'
    """
    known = None if norm is None else parse_norm(norm)
    arguments = {"inner": inner, "scope": scope, "norm": known}
    return chain(Normalize(scope, norm=2.0), inner, name="normalized", arguments=arguments, norm=known)


OPTIMIZERS.register("normalized", normalized)
