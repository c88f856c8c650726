"""Optimizers of optax on the normalized gradient, by name."""

from collections.abc import Callable

import optax

from attsvm.norms import Norm
from attsvm.optimizers.chain import chain
from attsvm.optimizers.learning_rate import LearningRate, Schedule
from attsvm.optimizers.normalize import Normalize
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.standing import Limit, conjectured


def of_optax(
    name: str,
    make: Callable[[float | Schedule], optax.GradientTransformation],
    learning_rate: float | Schedule,
    norm: Norm,
    of_factors: Limit,
) -> Optimizer:
    """An optimizer of optax on the gradient divided by its ℓ2 norm.

    Parameters
    ----------
    name : str
        Its name in ``OPTIMIZERS``.
    make : callable
        From the learning rate to the optimizer.
    learning_rate : float or callable
        A positive number, or a schedule.
    norm : Norm
        The norm whose Att-SVM it is compared with.
    of_factors : Limit
        What is known of its steps on keys and queries.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.
    """
    rate = LearningRate(learning_rate).rate
    limits = {**conjectured(norm), "factored": of_factors}
    parts = Normalize("all", norm=2.0), make(rate)
    return chain(*parts, name=name, arguments={"learning_rate": rate}, norm=norm, limits=limits)
