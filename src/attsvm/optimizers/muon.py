"""Muon on the normalized gradient."""

import optax

from attsvm.norms import Spectral
from attsvm.optimizers.learning_rate import Schedule
from attsvm.optimizers.of_optax import of_optax
from attsvm.optimizers.on_factors import AS_SHIPPED
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS


def muon(learning_rate: float | Schedule = 0.01) -> Optimizer:
    """Optax's Muon on the gradient divided by its ℓ2 norm, so that training continues where the gradient underflows.

    Its limit is expected to be the spectral Att-SVM, by analogy with linear models.

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
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer="muon", steps=100).norm.name
    'spectral'
    """
    return of_optax("muon", optax.contrib.muon, learning_rate, Spectral(), AS_SHIPPED)


OPTIMIZERS.register("muon", muon)
