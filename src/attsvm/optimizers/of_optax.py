"""Optimizers of optax on the normalized gradient, by name."""

from collections.abc import Callable

import optax

from attsvm.norms import Norm
from attsvm.optimizers.chain import chain
from attsvm.optimizers.learning_rate import LearningRate, Schedule
from attsvm.optimizers.limit import Limit, limits_of
from attsvm.optimizers.normalize import Normalize
from attsvm.optimizers.optimizer import Optimizer


def of_optax(
    name: str,
    make: Callable[[float | Schedule], optax.GradientTransformation],
    learning_rate: float | Schedule,
    norm: Norm,
    steps: str,
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
    steps : str
        The kind of its steps in the table of standings.
    of_factors : Limit
        The limit of its steps on keys and queries.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.
    """
    rate = LearningRate(learning_rate).rate
    limits = {**limits_of(norm, steps), "factored": of_factors}
    parts = Normalize("all", norm=2.0), make(rate)
    return chain(*parts, name=name, arguments={"learning_rate": rate}, norm=norm, limits=limits)
