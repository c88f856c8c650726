"""Normalized gradient descent."""

from typing import Literal

from attsvm.optimizers.chain import chain
from attsvm.optimizers.descent import Descent
from attsvm.optimizers.gradient_step import constant_step
from attsvm.optimizers.learning_rate import LearningRate, Schedule
from attsvm.optimizers.limit import euclidean
from attsvm.optimizers.normalize import Normalize
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.relative import Relative


def normalized_gradient_descent(
    learning_rate: float | Schedule = 0.1, *, scope: Literal["all", "each"] = "all", relative: bool = False
) -> Optimizer:
    """Normalized gradient descent: θ − η ∇L(θ)/‖∇L(θ)‖.

    Exact however small the gradient is: steps continue where the loss is below 1e-300.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.
    relative : bool
        Whether the step is η‖θ‖ long, the norm over the same scope. Steps cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number, or the scope is unknown.

    See Also
    --------
    attsvm.optimizers.gradient_descent, attsvm.optimizers.polyak

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 5.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.normalized_gradient_descent(0.1)
    >>> attsvm.train(random_problem(3, 4, 5, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    return chain(
        Normalize(scope),
        *([Relative(scope)] if relative else []),
        LearningRate(learning_rate),
        Descent(),
        name="normalized_gradient_descent",
        arguments={"learning_rate": learning_rate, "scope": scope, "relative": relative},
        limits=euclidean("normalized gradient descent", scope),
        gradient_step=constant_step(learning_rate, relative=relative, normalized=True),
    )


OPTIMIZERS.register("normalized_gradient_descent", normalized_gradient_descent)
