"""Gradient descent."""

from attsvm.optimizers.chain import chain
from attsvm.optimizers.descent import Descent
from attsvm.optimizers.gradient_step import constant_step
from attsvm.optimizers.learning_rate import LearningRate, Schedule
from attsvm.optimizers.limit import euclidean
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.relative import Relative


def gradient_descent(learning_rate: float | Schedule = 0.1, *, relative: bool = False) -> Optimizer:
    """Gradient descent: θ − η ∇L(θ).

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    relative : bool
        Whether the step is η‖θ‖ times the gradient.

    Returns
    -------
    Optimizer
        Where the gradient underflows to zero, training stops with status ``stalled``.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.

    See Also
    --------
    attsvm.optimizers.normalized_gradient_descent, attsvm.optimizers.polyak

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), Theorem 2; Tarzanagh, Li, Thrampoulidis and Oymak (2023), Theorem 4.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.gradient_descent(1.0)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    return chain(
        *([Relative()] if relative else []),
        LearningRate(learning_rate),
        Descent(),
        name="gradient_descent",
        arguments={"learning_rate": learning_rate, "relative": relative},
        limits=euclidean("gradient descent"),
        gradient_step=constant_step(learning_rate, relative=relative),
    )


OPTIMIZERS.register("gradient_descent", gradient_descent)
