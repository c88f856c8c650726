"""The arguments of :func:`attsvm.train`, checked and brought together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import optax

from attsvm.checks import MOST_STEPS, check_integer, check_number, check_seed
from attsvm.errors import ProblemError
from attsvm.heads import Head
from attsvm.losses import OutputLoss
from attsvm.norms import Lp, Norm
from attsvm.optimizers.standing import conjectured
from attsvm.problem import Problem
from attsvm.training.attention import Attention
from attsvm.training.engine.batches import MiniBatches
from attsvm.training.engine.objective import Objective
from attsvm.training.stopping import MarginPlateau, Stopping

HISTORY = ("steps", "loss", "probability", "selected", "weights", "log_scale")
"""What the history holds besides the parameters of a trained head."""


@dataclass(frozen=True)
class Setup:
    """One training: what is minimised, by what, and from where.

    Attributes
    ----------
    problem : Problem
    objective : Objective
    optimizer : optax.GradientTransformation
    of_head : dict of str to ndarray
        All parameters of the head.
    trained : dict of str to ndarray, shape (trials, ...)
        The initial values of the trained parameters.
    exponent : int ndarray, shape (trials,)
        The parameters of the attention are 2^exponent times the initial values.
    batch_shape : tuple of int
        The batch axes of the run, trials first.
    penalty : float
    stop : Stopping
    dtype : numpy.dtype
    batches : MiniBatches or None
    seed : int
    """

    problem: Problem
    objective: Objective
    optimizer: optax.GradientTransformation
    of_head: dict[str, np.ndarray]
    trained: dict[str, np.ndarray]
    exponent: np.ndarray
    batch_shape: tuple[int, ...]
    penalty: float
    stop: Stopping
    dtype: np.dtype[Any]
    batches: MiniBatches | None
    seed: int

    @property
    def num_trials(self) -> int:
        """The number of trials in the batch."""
        return int(np.prod(self.batch_shape, dtype=np.int64))


def check_numbers(steps: Any, dtype: str, penalty: Any, seed: Any) -> None:
    """Check the arguments that are numbers.

    Raises
    ------
    ProblemError
        If one is out of range.
    """
    check_integer("steps", steps, 0, MOST_STEPS)
    check_number("penalty", penalty, "a number >= 0", lambda x: x >= 0)
    check_seed(seed)
    if dtype not in ("float64", "float32"):
        raise ProblemError(f'dtype: expected "float64" or "float32", got {dtype!r}')


def parse_stop(stop: Stopping | None) -> Stopping:
    """The tolerances that are given; without any by default.

    Raises
    ------
    ProblemError
        If it is of another type.
    """
    if stop is None:
        return Stopping()
    if not isinstance(stop, Stopping):
        raise ProblemError(f"stop: expected a Stopping, got {stop!r}")
    return stop


def mini_batches(size: int | None, stop: Stopping, problem: Problem) -> MiniBatches | None:
    """The mini-batches of a size; None if each step sees all sequences.

    Raises
    ------
    ProblemError
        If the size does not fit, or comes with a tolerance of the gradient.
    """
    n = problem.tokens.shape[-3]
    if size is None or (size == n and not isinstance(size, bool)):
        return None
    if isinstance(size, bool) or not (isinstance(size, int | np.integer) and 1 <= size < n):
        raise ProblemError(f"batch_size: expected an integer from 1 to n = {n}, got {size!r}")
    if stop.gradient_tol is not None:
        raise ProblemError(
            f"gradient_tol: expected None with batch_size, got {stop.gradient_tol:g}; the gradients of single "
            "mini-batches do not vanish, so use margin_tol"
        )
    return MiniBatches(n, int(size))


def make_objective(
    problem: Problem, layer: Attention, head: Head, loss: OutputLoss, *, train_head: bool, penalized: bool
) -> tuple[Objective, dict[str, np.ndarray]]:
    """The objective, checked, and all parameters of the head.

    Raises
    ------
    ProblemError
        If head or loss do not fit.
    """
    of_head = head.initial(problem)
    taken = sorted({*layer.shapes(problem), *HISTORY} & set(of_head))
    if taken:
        raise ProblemError(f"head: the parameter name {taken[0]!r} is taken by the attention or the history")
    if train_head and not of_head:
        raise ProblemError("train_head: expected a head with parameters, got one without")
    objective = Objective(layer, head, loss, tuple(of_head) if train_head else (), penalized=penalized)
    objective.check(of_head, problem)
    return objective, of_head


def margin_plateau(
    stop: Stopping, problem: Problem, optimizer: optax.GradientTransformation, layer: Attention
) -> MarginPlateau | None:
    """What finds the trials whose margin no longer grows; None if the margins are not watched.

    Margins are measured in the norm of the optimizer, or, if it is Euclidean on factors, in the nuclear norm.

    Raises
    ------
    ProblemError
        If no query of a problem has a token to drop.
    """
    if stop.margin_tol is None:
        return None
    norm: Norm = getattr(optimizer, "norm", None) or Lp(2.0)
    return MarginPlateau(problem, conjectured(norm)[layer.name].norm or norm, stop.margin_tol)
