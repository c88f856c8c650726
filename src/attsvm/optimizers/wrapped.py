"""Any optimiser with momentum, or on the normalised gradient: among them Adam and Muon, those of optax."""

from dataclasses import replace
from typing import Literal

import numpy as np
import optax

from attsvm._utils.keywords import suggests
from attsvm.norms import Lp, Norm, Spectral, parse_norm
from attsvm.optimizers.hyperparameters import is_used
from attsvm.optimizers.optimizer import Optimizer, chain, rule_of
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.running_average import normalization
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.transformations import DecayingSum, LearningRate, Normalize
from attsvm.optimizers.unit_steps import Schedule


@suggests
def momentum(inner: optax.GradientTransformation, decay: float = 0.9, *, nesterov: bool = False) -> Optimizer:
    """Momentum for any optimiser: it receives m⁺ = β m + ∇L instead of the gradient.

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
        If ``inner`` is not an optimiser, or has momentum already, or the decay is out of range.

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
    steps = inner.steps if isinstance(inner, Optimizer) else None
    return chain(part, inner, name="momentum", arguments=arguments, steps=steps)


OPTIMIZERS.register("momentum", momentum)


@suggests
def normalized(
    inner: optax.GradientTransformation,
    *,
    scope: Literal["all", "each"] = "all",
    norm: str | float | Norm | None = None,
    average: float = 0.0,
) -> Optimizer:
    """Any optimiser on the normalised gradient ∇L/‖∇L‖.

    The gradient is normalised exactly however small it is: ``normalized(optax.adam(1e-2))`` continues where the
    gradient itself underflows, and its epsilon stays small compared with the gradient.

    Parameters
    ----------
    inner : optax.GradientTransformation
        One of :mod:`attsvm.optimizers` or any of optax's.
    scope : {"all", "each"}
        One ℓ2 norm over all parameters, those of all attention heads together, or one for each of each head.
    norm : str, float or Norm, optional
        The norm whose Att-SVM the optimiser is compared with; by default that of ``inner``, unknown for optax's.
    average : float
        β, 0 ≤ β < 1, as for :func:`normalized_gradient_descent`: where it is not 0, the gradient is divided by the
        running average of its norms.

    Raises
    ------
    ProblemError
        If ``inner`` is not an optimiser, the scope or the norm is unknown, or β is out of range.

    See Also
    --------
    attsvm.optimizers.momentum

    Examples
    --------
    >>> import attsvm, optax
    >>> from attsvm.datasets import random_problem
    >>> lion = attsvm.optimizers.normalized(optax.lion(1e-2), norm="linf")
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=lion, steps=100).norm.name
    'linf'
    """
    known = None if norm is None else parse_norm(norm)
    arguments = {"inner": inner, "scope": scope, "norm": known, **({"average": average} if is_used(average) else {})}
    of_inner = inner.steps if isinstance(inner, Optimizer) else rule_of(inner).steps
    # the same steps as those of normalized_gradient_descent, or of an optimiser of optax that is known by its name
    is_gradient = (of_inner.kind, of_inner.normalised, of_inner.momentum) == ("gradient", "no", 0)
    is_plain = known is None and (is_gradient or "." in of_inner.kind)
    steps = replace(of_inner, normalised="average" if is_used(average) else "step", scope=scope) if is_plain else None
    # the inner optimiser sees a gradient of length one, or one over the average length
    parts = normalization(scope, average), inner
    return chain(*parts, name="normalized", arguments=arguments, norm=known, steps=steps)


OPTIMIZERS.register("normalized", normalized)


@suggests
def adam(learning_rate: float | Schedule = 0.01) -> Optimizer:
    """Optax's Adam on the gradient divided by its ℓ2 norm, so that training continues where the gradient underflows.

    Its limit is expected to be the ℓ∞ Att-SVM, by analogy with linear models; of keys and queries that in the norm ν.

    Parameters
    ----------
    learning_rate : float or callable
        A number >= 0, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If the learning rate is not a number >= 0.

    See Also
    --------
    attsvm.optimizers.normalized, attsvm.optimizers.steepest_descent

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer="adam", steps=100).norm.name
    'linf'
    """
    rate, steps = LearningRate(learning_rate).rate, Steps("adam", Lp(np.inf), "step")
    return chain(Normalize(), optax.adam(rate), name="adam", arguments={"learning_rate": rate}, steps=steps)


OPTIMIZERS.register("adam", adam)


@suggests
def muon(learning_rate: float | Schedule = 0.01) -> Optimizer:
    """Optax's Muon on the gradient divided by its ℓ2 norm, so that training continues where the gradient underflows.

    With the shipped coefficients (``polar="optax"``), Muon converges to none of the known norms (spectral margin ratio
    about 0.83, flat); with a converged polar factor it follows the spectral norm:
    ``spectral_descent(momentum=0.95, polar="newton_schulz")``.

    Parameters
    ----------
    learning_rate : float or callable
        A number >= 0, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If the learning rate is not a number >= 0.

    See Also
    --------
    attsvm.optimizers.spectral_descent, attsvm.optimizers.normalized

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> problem = random_problem(6, 8, 10, seed=3)
    >>> run = attsvm.train(problem, optimizer="muon", steps=20_000)
    >>> bool(attsvm.margin_ratio(problem, run.weights, run.selected, "spectral") < 0.9)
    True
    """
    rate, steps = LearningRate(learning_rate).rate, Steps("muon", Spectral(), "step", scope="heads")
    return chain(Normalize(), optax.contrib.muon(rate), name="muon", arguments={"learning_rate": rate}, steps=steps)


OPTIMIZERS.register("muon", muon)
