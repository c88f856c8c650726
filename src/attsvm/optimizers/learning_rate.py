"""The length of a step: a number or a schedule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attsvm.optimizers.chain import Context, Transformation
from attsvm.optimizers.numbers import read_number
from attsvm.optimizers.scales import Scales, Tree
from attsvm.optimizers.sizes import over_trials

Array = jax.Array
Schedule = Callable[[Array], Array]


@dataclass(frozen=True)
class Decaying:
    """A schedule that decays: η/(1 + k/K)^a at step k.

    It does not depend on the number of steps of a run, and is written to files: a resumed run makes the steps of one
    that was not interrupted.

    Parameters
    ----------
    rate : float
        η, the rate of the first step.
    steps : float
        K, the number of steps after which the rate is a factor 2^a smaller.
    power : float
        a. With a = 1/2 every step of descent in a norm changes the logits of factors K and Q by about as much, because
        the factors grow as fast as the steps decay.

    Raises
    ------
    ProblemError
        If a number is not positive.

    See Also
    --------
    attsvm.optimizers.LearningRate

    Examples
    --------
    >>> from attsvm.optimizers import Decaying, normalized_gradient_descent
    >>> normalized_gradient_descent(Decaying(0.03, 4000), relative=True)
    normalized_gradient_descent(learning_rate=Decaying(rate=0.03, steps=4000.0, power=1.0), scope='all', relative=True)
    """

    rate: float
    steps: float
    power: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rate", "steps", "power"):
            object.__setattr__(self, name, read_number(name, getattr(self, name), "a positive number"))

    def __call__(self, step: Array) -> Array:
        """The rate after a number of steps."""
        return self.rate / (1.0 + step / self.steps) ** self.power


class Taken(NamedTuple):
    """Number of steps taken, shape (B,)."""

    steps: Array


@dataclass(frozen=True)
class LearningRate(Transformation):
    """Multiply the gradient by a number, or by a function of the number of steps taken.

    Parameters
    ----------
    rate : float or callable
        A positive number, or a schedule: a JAX function of the number of steps taken.

    Raises
    ------
    ProblemError
        If it is neither.

    See Also
    --------
    attsvm.optimizers.Decaying, attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import Descent, LearningRate, Normalize, chain
    >>> chain(Normalize(), LearningRate(0.1), Descent()).numbers
    {'learning_rate': 0.1}
    >>> chain(Normalize(), LearningRate(lambda k: 1 / (1 + k)), Descent()).norm.name
    'frobenius'
    """

    # numbers are not compared: equal chains share their compiled training
    rate: float | Schedule = field(compare=False)
    schedule: Schedule | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.rate):
            rate = read_number("learning_rate", self.rate, "a positive number or a schedule")
            object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "schedule", self.rate if callable(self.rate) else None)

    @property
    def numbers(self) -> Mapping[str, float]:
        """The learning rate, unless it is a schedule."""
        return {} if callable(self.rate) else {"learning_rate": self.rate}

    @property
    def degree(self) -> int:
        return 0

    def init(self, params: Tree) -> Taken | tuple[()]:
        """The initial state: 0 steps with a schedule, otherwise an empty state."""
        if self.schedule is None:
            return ()
        return Taken(jnp.zeros(next(iter(params.values())).shape[-1], jnp.int32))

    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """Multiply all gradients by the rate of this step."""
        if self.schedule is None:
            rate = context.numbers["learning_rate"]
        else:
            rate, state = over_trials(self.schedule)(state.steps), Taken(state.steps + 1)
        return gradient, scales.times(rate), state
