"""The interface of an optimizer in a margin profile."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.progress import Callback
from attsvm.problem import Problem

Arrays = dict[str, np.ndarray]
Factor = Callable[[Any], Any]
"""From the number of steps taken, an integer or a JAX array, to the factor of the learning rate."""


@dataclass(frozen=True)
class Task:
    """What a trajectory starts from and how it is made."""

    problem: Problem  # a batch of S problems
    attention: str
    start: Arrays  # shape (S, ...), the initial parameters of the attention
    looks: tuple[int, ...]  # the numbers of steps after which the weights are looked at, in increasing order
    normalize: bool  # whether each gradient is divided by its ℓ2 norm, one norm over all parameters of a problem
    batch_size: int | None = None  # as for :func:`attsvm.train`
    device: str | None = None  # as for :func:`attsvm.margin_profile`
    callback: Callback | None = None  # as for :func:`attsvm.train`

    @property
    def steps(self) -> int:
        """How many steps there are at most."""
        return self.looks[-1]


@dataclass(frozen=True)
class Look:
    """The weights after some of the steps of a task."""

    step: int
    weights: np.ndarray  # shape (S, ...), of the Att-SVM, up to a factor
    logit_change: np.ndarray  # shape (S,), the largest change of a logit in the step to these weights
    finite: bool = True  # whether all weights stayed finite. If not, this look is the last.
    interrupted: bool = False  # whether the callback ended the trajectory


class Stepped(ABC):
    """An optimizer of one library, as a profile steps it."""

    name: str
    learning_rate: float | None  # what the schedules multiply; None if the optimizer has its own

    def decays_weights(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether a gradient of zero moves every entry of a small parameter towards zero.

        A projection moves large weights only, and a random step moves some entries away from zero.
        """
        small = {name: 1e-6 * (-1.0) ** np.arange(np.prod(shape)).reshape(shape) for name, shape in shapes.items()}
        moved = self.idle_step(small)
        return any(bool(((moved[name] - x) * x < 0).all()) for name, x in small.items())

    @abstractmethod
    def idle_step(self, parameters: Arrays) -> Arrays:
        """The parameters after one step with a gradient of zero."""

    @abstractmethod
    def trajectory(self, task: Task, factor: Factor) -> Generator[Look, None, None]:
        """Train with the learning rate times a factor that depends on the step, and stop at each look of the task."""
