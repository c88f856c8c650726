"""Adam on the normalized gradient."""

import numpy as np
import optax

from attsvm.norms import Lp
from attsvm.optimizers.learning_rate import Schedule
from attsvm.optimizers.of_optax import of_optax
from attsvm.optimizers.on_factors import BY_ADAM
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS


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
