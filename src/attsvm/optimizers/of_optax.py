"""Optimizers of optax on the normalized gradient, by name: Adam and Muon."""

from collections.abc import Callable

import numpy as np
import optax

from attsvm.norms import Lp, Norm, Spectral
from attsvm.optimizers.chain import chain
from attsvm.optimizers.limit import AS_SHIPPED, BY_ADAM, Limit, limits_of
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.transformations import LearningRate, Normalize, Schedule


def of_optax(
    name: str,
    make: Callable[[float | Schedule], optax.GradientTransformation],
    learning_rate: float | Schedule,
    norm: Norm,
    steps: str,
    of_factors: Limit,
) -> Optimizer:
    """An optimizer of optax on the gradient divided by its ℓ2 norm.

    ``name``: its name in ``OPTIMIZERS``. ``make``: from the learning rate to the optimizer. ``learning_rate``: a
    positive number, or a schedule. ``norm``: the norm whose Att-SVM it is compared with. ``steps``: the kind of its
    steps in the table of standings. ``of_factors``: the limit of its steps on keys and queries.

    Raises ProblemError if the learning rate is not a positive number.
    """
    rate = LearningRate(learning_rate).rate
    limits = {**limits_of(norm, steps), "factored": of_factors}
    parts = Normalize("all", norm=2.0), make(rate)
    return chain(*parts, name=name, arguments={"learning_rate": rate}, norm=norm, limits=limits)


def adam(learning_rate: float | Schedule = 0.01) -> Optimizer:
    """Optax's Adam on the gradient divided by its ℓ2 norm, so that training continues where the gradient underflows.

    Its limit is expected to be the ℓ∞ Att-SVM, by analogy with linear models; of keys and queries that in the norm ν.

    Parameters
    ----------
    learning_rate : float or callable
        A positive number, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.

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
    return of_optax("adam", optax.adam, learning_rate, Lp(np.inf), "adam", BY_ADAM)


OPTIMIZERS.register("adam", adam)


def muon(learning_rate: float | Schedule = 0.01) -> Optimizer:
    """Optax's Muon on the gradient divided by its ℓ2 norm, so that training continues where the gradient underflows.

    With the shipped coefficients (``polar="optax"``), Muon converges to none of the known norms (spectral margin ratio
    about 0.83, flat); with a converged polar factor it follows the spectral norm:
    ``spectral_descent(momentum=0.95, polar="newton_schulz")``.

    Parameters
    ----------
    learning_rate : float or callable
        A positive number, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.

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
    return of_optax("muon", optax.contrib.muon, learning_rate, Spectral(), AS_SHIPPED.steps, AS_SHIPPED)


OPTIMIZERS.register("muon", muon)
