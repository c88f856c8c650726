"""The interface of an optimiser in a margin profile."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm._utils.progress import Callback
from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.problem import Problem

Arrays = dict[str, np.ndarray]

SEEDS, STEPS = 20, 20_000
"""The largest numbers of problems and of steps by default. Commands read them without loading a profile."""

_CAUSES = {
    "closure": "needs a closure",
    "value_fn": "needs the loss as a function",
    "obj_fn": "needs the loss as a function",
    "does not require grad": "differentiates the gradient",
}
"""What the errors of some optimisers contain, and what these optimisers do."""


class RateFactor(ABC):
    """The factor of the learning rate in each step.

    Attributes
    ----------
    first : float
        What the learning rate is multiplied by, besides a schedule.
    constant : float or None
        The factor of all steps until the next look; None if it depends on the step.
    """

    first: float = 1.0
    constant: float | None = None

    @abstractmethod
    def __call__(self, step: Any) -> Any:
        """The factor after a number of steps, an integer or a JAX array."""

    def restart(self) -> None:  # noqa: B027
        """Begin another run; by default nothing is kept of a run."""

    def marks(self, steps: int) -> Iterable[int]:
        """Numbers of steps after which it is corrected; none by default."""
        return ()

    def correct(self, step: int, logit_change: np.ndarray) -> None:  # noqa: B027
        """Correct it by how much the last step changed a logit, in each problem."""

    @abstractmethod
    def growth(self, step: int, later: int) -> float:
        """How many times longer the steps are expected to be later."""


@dataclass(frozen=True)
class Schedule(RateFactor):
    """A factor that depends on the number of steps alone."""

    of: Callable[[Any], Any]

    def __call__(self, step: Any) -> Any:
        return self.of(step)

    def growth(self, step: int, later: int) -> float:
        return float(self(later) / self(step))


@dataclass(frozen=True)
class ProfileTask:
    """The start of a trajectory, and how it is made."""

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


def refusal(name: str, error: Exception) -> ProblemError:
    """The error for an optimiser that raised one in a step."""
    why = first_line(error)
    for text, cause in _CAUSES.items():
        if text in why:
            return ProblemError(f"optimizer: {name} {cause}; a profile only provides the values of the gradient")
    return ProblemError(f"optimizer: {name} refused a step ({why})")


def first_line(error: Exception) -> str:
    """Of its text; its type if it has none."""
    return (str(error).splitlines() or [""])[0] or type(error).__name__


class Stepped(ABC):
    """An optimiser of one library, as a profile steps it."""

    name: str
    learning_rate: float | None  # what the schedules multiply; None if the optimiser has its own

    def norms(self, attention: str) -> list[Norm]:
        """The norm of the Att-SVM that it is compared with; none if that is not known."""
        return []

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
    def trajectory(self, task: ProfileTask, factor: RateFactor) -> Generator[Look, None, None]:
        """Train with the learning rate times a factor that depends on the step, and stop at each look of the task."""
