"""Profiles of optax transformations, those of :mod:`attsvm.optimizers` included."""

from collections.abc import Callable, Mapping
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

    def decays_weights(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether its update of ones is not zero where the gradient is."""
        with jax.enable_x64(True):
            updates = update_of_ones(self._make(lambda k: 1.0 + 0.0 * k), shapes)
            return any(bool(jnp.any(x != 0)) for x in updates.values())

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
            device=task.device,
            callback=task.callback,
        )
        status = np.asarray(run.status)
        interrupted = bool((status == Status.INTERRUPTED).any())
        if not len(run.history["steps"]):
            return Trajectory(np.stack([run.weights] * 4), np.zeros(len(run.weights)), True, interrupted)
        # a run that ends early holds fewer records, and its last weights in place of the others
        places = np.searchsorted(run.history["steps"], task.records).clip(max=len(run.history["steps"]) - 1)
        return Trajectory(
            run.history["weights"][places],
            run.history["logit_change"][places].max(axis=0),
            finite=not (status == Status.NON_FINITE).any(),
            interrupted=interrupted,
        )


def update_of_ones(transformation: optax.GradientTransformation, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """The first update of parameters that are all 1, for a gradient of zero."""
    ones = {name: jnp.ones(shape) for name, shape in shapes.items()}
    zero = jax.tree.map(jnp.zeros_like, ones)
    extended = optax.with_extra_args_support(transformation)
    updates, _ = extended.update(zero, extended.init(ones), ones, value=jnp.zeros(()), grad=zero)
    return updates


def _real(steps: Any) -> jax.Array:
    # a 32-bit count divided by a Python number has single precision
    return jnp.asarray(steps, jnp.float64)
