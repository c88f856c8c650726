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
