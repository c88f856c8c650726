"""Any optimizer on the normalized gradient."""

from typing import Literal

import optax

from attsvm.norms import Norm, parse_norm
from attsvm.optimizers.chain import chain
from attsvm.optimizers.normalize import Normalize
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS


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
