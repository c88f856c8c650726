"""Profiles of optax transformations, those of :mod:`attsvm.optimizers` included."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attsvm.optimizers import Optimizer, chain, normalized
from attsvm.optimizers.optimizer import rule_of
from attsvm.optimizers.rule import Wrapped
from attsvm.optimizers.scales import Scaled, Tree
from attsvm.profiles.pace import Pace
from attsvm.profiles.stepped import Arrays, Factor, Look, Stepped, Task
from attsvm.results import Status
from attsvm.training import train


@dataclass(frozen=True)
class Multiplied(Wrapped):
    """The steps of a rule, times a factor that can change without compiling anything anew."""

    step_factor: float = field(compare=False)

    @property
    def numbers(self) -> Mapping[str, float]:
        return {**self.rule.numbers, "step_factor": self.step_factor}

    def update(
        self, updates: Scaled, state: Any, params: Tree, *, numbers: Mapping[str, Any], value: jax.Array
    ) -> tuple[Tree, Any]:
        moves, state = self.rule.update(updates, state, params, numbers=numbers, value=value)
        return {name: numbers["step_factor"] * move for name, move in moves.items()}, state


class OfOptax(Stepped):
    """An optax transformation.

    ``make``: from a factor of the learning rate to the transformation.
    """

    def __init__(
        self,
        make: Callable[[Factor], optax.GradientTransformation],
        name: str,
        learning_rate: float | None,
        constant: optax.GradientTransformation,
        of_rate: Callable[[float], optax.GradientTransformation] | None = None,
    ) -> None:
        self._make, self.name, self.learning_rate = make, name, learning_rate
        self._constant, self._of_rate = constant, of_rate

    @classmethod
    def of_factory(cls, factory: Callable[..., Any], name: str, learning_rate: float) -> "OfOptax":
        """A function of a learning rate that takes schedules."""
        constant = factory(learning_rate)
        # the rate is one of the numbers of such an optimizer, and not part of its compiled training
        free = isinstance(constant, Optimizer) and "learning_rate" in constant.numbers
        of_rate = (lambda factor: factory(learning_rate * factor)) if free else None
        make = lambda factor: factory(lambda k: learning_rate * factor(_real(k)))  # noqa: E731
        return cls(make, name, learning_rate, constant, of_rate)

    @classmethod
    def of_transformation(
        cls, transformation: optax.GradientTransformation, name: str, learning_rate: float | None = None
    ) -> "OfOptax":
        """A transformation with a learning rate of its own: its updates are multiplied by the factor."""

        def make(factor: Factor) -> optax.GradientTransformation:
            return optax.chain(transformation, optax.scale_by_schedule(lambda k: factor(_real(k))))

        return cls(make, name, learning_rate, transformation)

    def idle_step(self, parameters: Arrays) -> Arrays:
        """By one update of the transformation."""
        with jax.enable_x64(True):
            update = idle_update(self._make(lambda k: 1.0 + 0.0 * k), parameters)
            return {name: x + np.asarray(update[name]) for name, x in parameters.items()}

    def _optimizer(self, factor: Factor, normalize: bool) -> optax.GradientTransformation:
        if not isinstance(factor, Pace):
            made = self._make(factor)
        elif self._of_rate is not None:
            made = self._of_rate(factor.factor)
        else:
            made = chain(Multiplied(rule_of(self._constant), factor.factor))
        return normalized(made) if normalize else made

    def trajectory(self, task: Task, factor: Factor) -> Generator[Look, None, None]:
        """By :func:`attsvm.train`, which resumes after each look."""
        optimizer = self._optimizer(factor, task.normalize)
        point: Any = task.start
        done = 0
        for step in task.looks:
            if isinstance(factor, Pace):
                optimizer = self._optimizer(factor, task.normalize)
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
