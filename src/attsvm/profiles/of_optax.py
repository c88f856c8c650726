"""Profiles of optax transformations, those of :mod:`attsvm.optimizers` included."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attsvm.optimizers import normalized
from attsvm.profiles.stepped import Factor, Stepped, Task, Trajectory
from attsvm.results import Status
from attsvm.training import train


class OfOptax(Stepped):
    """An optax transformation.

    Parameters
    ----------
    make : callable
        From a factor of the learning rate to the transformation.
    name : str
    learning_rate : float or None
    """

    def __init__(
        self, make: Callable[[Factor], optax.GradientTransformation], name: str, learning_rate: float | None
    ) -> None:
        self._make, self.name, self.learning_rate = make, name, learning_rate

    @classmethod
    def of_factory(cls, factory: Callable[..., Any], name: str, learning_rate: float) -> "OfOptax":
        """A function of a learning rate that takes schedules."""
        return cls(lambda factor: factory(lambda k: learning_rate * factor(_real(k))), name, learning_rate)

    @classmethod
    def of_transformation(
        cls, transformation: optax.GradientTransformation, name: str, learning_rate: float | None = None
    ) -> "OfOptax":
        """A transformation with a learning rate of its own: its updates are multiplied by the factor."""

        def make(factor: Factor) -> optax.GradientTransformation:
            return optax.chain(transformation, optax.scale_by_schedule(lambda k: factor(_real(k))))

        return cls(make, name, learning_rate)

    def decays_weights(self) -> bool:
        """Whether its update of ones is not zero where the gradient is."""
        with jax.enable_x64(True):
            ones = {"W": jnp.ones((2, 2))}
            extended = optax.with_extra_args_support(self._make(lambda k: 1.0 + 0.0 * k))
            updates, _ = extended.update(jax.tree.map(jnp.zeros_like, ones), extended.init(ones), ones, value=0.0)
            return bool(jnp.any(updates["W"] != 0))

    def trajectory(self, task: Task, factor: Factor) -> Trajectory:
        """By :func:`attsvm.train`."""
        optimizer = self._make(factor)
        run = train(
            task.problem,
            attention=task.attention,
            optimizer=normalized(optimizer) if task.normalize else optimizer,
            steps=task.steps,
            init=task.start,
            record=task.records,
            callback=task.callback,
        )
        status = np.asarray(run.status)
        # a run that ends early holds fewer records, and its last weights in place of the others
        places = np.searchsorted(run.history["steps"], task.records).clip(max=len(run.history["steps"]) - 1)
        return Trajectory(
            run.history["weights"][places],
            run.history["logit_change"][places].max(axis=0),
            finite=not (status == Status.NON_FINITE).any(),
            interrupted=bool((status == Status.INTERRUPTED).any()),
        )


def _real(steps: Any) -> jax.Array:
    # a 32-bit count divided by a Python number has single precision
    return jnp.asarray(steps, jnp.float64)
