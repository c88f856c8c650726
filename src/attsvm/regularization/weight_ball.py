"""The ball of attention weights that a path runs over, found by the type of its norm."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.regularization.cones import CircularCone
from attsvm.regularization.kept_sets import Tail
from attsvm.regularization.objectives import Objective

MAX_STEPS = 300


class Found(NamedTuple):
    """A minimum in a ball."""

    weights: np.ndarray  # shape (d_k d_q,)
    objective: Objective  # the objective, rebased at the weights
    residual: float  # how far the weights are from stationary


@dataclass(frozen=True)
class WeightBall(ABC):
    """N(W) ≤ radius for matrices of one shape, inside a cone if there is one.

    A subclass provides :meth:`steepest` and :meth:`minimise`, and is registered for the type of its norm with
    ``ball_of.register``.

    Attributes
    ----------
    shape : (int, int)
        (d_k, d_q); d_q = 1 for a prompt.
    norm : Norm
    cone : CircularCone, optional

    See Also
    --------
    attsvm.regularization.ball_of : Finds one by the type of the norm.
    """

    shape: tuple[int, int]
    norm: Norm
    cone: CircularCone | None = None

    @abstractmethod
    def steepest(self, gradient: np.ndarray) -> np.ndarray:
        """The flat weights of norm 1 along which a function with this gradient decreases fastest."""

    @abstractmethod
    def minimise(self, objective: Objective, start: np.ndarray, radius: float) -> Found:
        """A local minimum over the ball of this radius, from ``start``, which is first moved into it."""

    def minimise_tail(self, tail: Tail, start: np.ndarray, radius: float) -> Found | None:
        """The minimum of the dropped tokens' part of the loss; None if this ball does not split into both parts."""
        return None

    @property
    def power(self) -> float:
        """The power of the norm that is the natural penalty: 1, or that in which the norm is a sum."""
        return 1.0

    @property
    def random_starts(self) -> int:
        """Branches that start at random weights, for each of a few radii; 0 for a convex ball."""
        return 0

    def separators(self, problem: Problem, selected: np.ndarray) -> list[np.ndarray]:
        """Flat weights that select these tokens: starts at the largest radius, for a ball that is not convex."""
        return []

    @property
    def needs_dense_hessian(self) -> bool:
        """Whether Newton steps need the Hessian in all entries of the weights, not only along the logits."""
        return self.cone is not None

    def size(self, weights: np.ndarray) -> float:
        """N(W) of flat weights."""
        return float(self.norm.values(weights.reshape(self.shape)))

    def residual(self, objective: Objective, weights: np.ndarray, radius: float, pull: float = 0.0) -> float:
        """How far the weights are from stationary; 0 where stationary.

        On the sphere it is 1 − ⟨−G, W⟩/(N*(G) N(W)), inside the ball N*(G) N(W), where G is the gradient of the log
        excess, with the multiplier of the cone. At W = 0, the vertex of a cone, it is the fastest decrease into it.
        """
        gradient = objective.expand(weights).gradient
        if self.cone is not None and not weights.any():
            return max(radius * self.cone.steepest(gradient), 0.0)
        if self.cone is not None and pull > 0:
            gradient = gradient + pull * self.cone.gradient(weights)
        steepest = float(self.norm.dual.values(gradient.reshape(self.shape)))
        inward = float(gradient @ weights)
        size = self.size(weights)
        if size >= radius * (1 - 1e-9) and inward < 0:
            return max(1 + inward / (steepest * size), 0.0)
        return steepest * size

    def _found(self, objective: Objective, weights: np.ndarray, radius: float, pull: float) -> Found:
        objective = objective.rebased(weights)
        return Found(weights, objective, self.residual(objective, weights, radius, pull))


@singledispatch
def ball_of(norm: Norm, shape: tuple[int, int], cone: CircularCone | None = None) -> WeightBall:
    """The ball of a norm, found by the type of the norm.

    Parameters
    ----------
    norm : Norm
    shape : (int, int)
        Of the weights, (d_k, d_q).
    cone : CircularCone, optional

    Returns
    -------
    WeightBall

    Raises
    ------
    ProblemError
        If no ball is registered for norms of this type.

    See Also
    --------
    attsvm.regularization.WeightBall
    attsvm.regularization_path

    Examples
    --------
    >>> from attsvm.norms import Lp
    >>> from attsvm.regularization import ball_of
    >>> ball_of(Lp(2), (5, 1)).shape
    (5, 1)
    """
    raise no_ball(norm)


def no_ball(norm: Norm) -> ProblemError:
    """The error for a norm without a ball."""
    types = ", ".join(sorted(kind.__name__ for kind in ball_of.registry if kind is not object))
    return ProblemError(
        f"norm: expected a norm with regularization paths ({types}; p of Lp with 1 < p < inf), got {norm.name}"
    )
