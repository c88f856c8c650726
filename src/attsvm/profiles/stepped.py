"""What a profile needs of an optimizer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.problem import Problem
from attsvm.results import Callback

Arrays = dict[str, np.ndarray]
Factor = Callable[[Any], Any]
"""From the number of steps taken, an integer or a JAX array, to the factor of the learning rate."""


@dataclass(frozen=True)
class Task:
    """What a trajectory starts from and how it is made.

    Attributes
    ----------
    problem : Problem
        A batch of S problems.
    attention : str
    start : dict of str to ndarray, shape (S, ...)
        The initial parameters of the attention.
    steps : int
        At least 4.
    normalize : bool
        Whether each gradient is divided by its ℓ2 norm, one norm over all parameters of a problem.
    device : str or None
        As for :func:`attsvm.margin_profile`.
    callback : callable, optional
        As for :func:`attsvm.train`.
    """

    problem: Problem
    attention: str
    start: Arrays
    steps: int
    normalize: bool
    device: str | None = None
    callback: Callback | None = None

    @property
    def records(self) -> list[int]:
        """Half of the steps and all of them, each after the step before it."""
        return [self.steps // 2 - 1, self.steps // 2, self.steps - 1, self.steps]


@dataclass(frozen=True)
class Trajectory:
    """The weights at the records of a task.

    Attributes
    ----------
    weights : ndarray, shape (4, S, ...)
        Of the Att-SVM, up to a factor.
    logit_change : ndarray, shape (S,)
        The largest change of a logit in the steps to the second and the last record.
    finite : bool
        Whether all weights stayed finite.
    """

    weights: np.ndarray
    logit_change: np.ndarray
    finite: bool
    interrupted: bool = False


class Stepped(ABC):
    """An optimizer of one library, as a profile steps it.

    Attributes
    ----------
    name : str
    learning_rate : float or None
        What the schedules multiply; None if the optimizer has its own.
    """

    name: str
    learning_rate: float | None

    @abstractmethod
    def decays_weights(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether a gradient of zero moves parameters of these shapes that are all 1."""

    @abstractmethod
    def trajectory(self, task: Task, factor: Factor) -> Trajectory:
        """Train with the learning rate times a factor that depends on the step."""
