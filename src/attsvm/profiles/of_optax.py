"""Profiles of optax transformations, those of :mod:`attsvm.optimizers` included."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers import Optimizer, multiplied, normalized
from attsvm.profiles.stepped import Arrays, Look, ProfileTask, RateFactor, Schedule, Stepped, refusal
from attsvm.results import Status
from attsvm.training import train


class OfOptax(Stepped):
    """An optax transformation.

    ``make``: from a factor of the learning rate, which depends on the step, to the transformation. ``with_factor``:
    from a number; what it returns for several numbers shares its compiled training. ``one``: with the factor 1.
    """

    def __init__(
        self,
        make: Callable[[RateFactor], optax.GradientTransformation],
        with_factor: Callable[[float], optax.GradientTransformation],
        one: optax.GradientTransformation,
        name: str,
        learning_rate: float | None,
    ) -> None:
        self._make, self._with_factor, self._one = make, with_factor, one
        self.name, self.learning_rate = name, learning_rate

    @classmethod
    def of_factory(cls, factory: Callable[..., Any], name: str, learning_rate: float) -> "OfOptax":
        """A function of a learning rate that takes schedules."""
        constant = factory(learning_rate)
        # the learning rate of such an optimiser is a number that may change
        free = isinstance(constant, Optimizer) and "learning_rate" in constant.numbers
        return cls(
            lambda factor: factory(lambda k: learning_rate * factor(_real(k))),
            (lambda factor: factory(learning_rate * factor)) if free else partial(multiplied, constant),
            constant,
            name,
            learning_rate,
        )

    @classmethod
    def of_transformation(
        cls, transformation: optax.GradientTransformation, name: str, learning_rate: float | None = None
    ) -> "OfOptax":
        """A transformation with a learning rate of its own: its updates are multiplied by the factor."""

        def make(factor: RateFactor) -> optax.GradientTransformation:
            return optax.chain(transformation, optax.scale_by_schedule(lambda k: factor(_real(k))))

        return cls(make, partial(multiplied, transformation), transformation, name, learning_rate)

    def norms(self, attention: str) -> list[Norm]:
        """That of an optimiser of attsvm."""
        norm = self._one.limit(attention).norm if isinstance(self._one, Optimizer) else None
        return [] if norm is None else [norm]

    def idle_step(self, parameters: Arrays) -> Arrays:
        """By one update of the transformation."""
        with jax.enable_x64(True):
            try:
                update = idle_update(self._make(Schedule(lambda k: 1.0 + 0.0 * k)), parameters)
            except ProblemError:
                raise
            except Exception as error:  # a transformation may fail in any way
                raise refusal(self.name, error) from error
            return {name: x + np.asarray(update[name]) for name, x in parameters.items()}

    def trajectory(self, task: ProfileTask, factor: RateFactor) -> Generator[Look, None, None]:
        """By :func:`attsvm.train`, which resumes after each look."""
        scheduled = self._make(factor)
        point: Any = task.start
        done = 0
        for step in task.looks:
            made = scheduled if factor.constant is None else self._with_factor(factor.constant)
            optimizer = normalized(made) if task.normalize else made
            point = run = train(
                task.problem,
                attention=task.attention,
                optimizer=optimizer,
                steps=step - done,
                init=point,
                record=[step - 1, step],
                batch_size=task.batch_size,
                device=task.device,
                callback=task.callback,
            )
            done, status = step, np.asarray(run.status)
            finite = not (status == Status.NON_FINITE).any()
            interrupted = bool((status == Status.INTERRUPTED).any())
            # a run that ends before its records has none
            changes = run.history["logit_change"]
            change = changes[-1] if len(changes) else np.zeros(len(run.weights))
            yield Look(step, run.weights, change, finite, interrupted)
            if interrupted or not finite:
                return


def idle_update(transformation: optax.GradientTransformation, parameters: Arrays) -> Any:
    """The first update of parameters for a gradient of zero."""
    given = {name: jnp.asarray(x) for name, x in parameters.items()}
    zero = jax.tree.map(jnp.zeros_like, given)
    extended = optax.with_extra_args_support(transformation)
    updates, _ = extended.update(zero, extended.init(given), given, value=jnp.zeros(()), grad=zero)
    return updates


def _real(steps: Any) -> jax.Array:
    # a 32-bit count divided by a Python number has single precision
    return jnp.asarray(steps, jnp.float64)
