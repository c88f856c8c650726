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

    ``name``: its name in ``OPTIMIZERS``. ``make``: from the learning rate to the optimizer. ``learning_rate``: a
    positive number, or a schedule. ``norm``: the norm whose Att-SVM it is compared with. ``steps``: the kind of its
    steps in the table of standings. ``of_factors``: the limit of its steps on keys and queries.

    Raises ProblemError if the learning rate is not a positive number.
    """
    rate = LearningRate(learning_rate).rate
    limits = {**limits_of(norm, steps), "factored": of_factors}
    parts = Normalize("all", norm=2.0), make(rate)
    return chain(*parts, name=name, arguments={"learning_rate": rate}, norm=norm, limits=limits)
