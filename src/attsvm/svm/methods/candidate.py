"""The settings of a solver and the candidate that it returns, which is certified afterwards."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attsvm.norms import Norm
from attsvm.svm.constraints.constraints import Constraints, TokenValues, Weights
from attsvm.svm.loop import Report


@dataclass(frozen=True)
class Settings:
    """How precise a solver has to be, and where it starts."""

    tol: float = 1e-8  # relative gap at which an iterative method may stop
    max_steps: int | None = None  # None leaves it to the method
    warm_start: np.ndarray | None = None  # shape (*batch, d_k, d_q), initial weights, for the methods that can use them
    report: Report | None = None  # called as ``report(step, gap)`` by iterative methods; a true return value stops them
    # shape (*batch, n, Q, T), multipliers of the original rows that belong to the initial weights, if they are known
    warm_multipliers: np.ndarray | None = None

    def of_problem(self, k: int, batch_shape: tuple[int, ...]) -> "Settings":
        """The settings for the k-th problem of a batch."""
        index = np.unravel_index(k, batch_shape)
        start, multipliers = self.warm_start, self.warm_multipliers
        return replace(
            self,
            warm_start=None if start is None else start[index],
            warm_multipliers=None if multipliers is None else multipliers[index],
        )


class Candidate(NamedTuple):
    """Weights and multipliers that may be optimal, or multipliers that may prove infeasibility, not yet certified."""

    weights: Weights  # at any scale: only their direction matters
    multipliers: TokenValues  # of the original rows, at any positive scale
    ray: Bool[np.ndarray, "*batch"]  # True where the multipliers are Farkas multipliers
    steps: Int[np.ndarray, "*batch"]
    method: str
    why: str  # why the method was chosen, in a few words
    # the norm with whose dual norm the multipliers are certified, if the solver knows how to bound that
    norm: Norm | None = None

    @classmethod
    def nothing(cls, constraints: Constraints, why: str) -> "Candidate":
        """Zeros, from a solver that found nothing."""
        batch = constraints.batch_shape
        weights = np.zeros((*batch, *constraints.weights_shape))
        multipliers = np.zeros(constraints.inequality.shape)
        return cls(weights, multipliers, np.zeros(batch, bool), np.zeros(batch, int), "none", why)

    @classmethod
    def joined(cls, each: "list[Candidate]") -> "Candidate":
        """Candidates of single problems as those of a batch."""
        weights, multipliers, ray, steps = (np.stack(parts) for parts in list(zip(*each, strict=True))[:4])
        return cls(weights, multipliers, ray, steps, each[0].method, each[0].why)

    def finite(self) -> "Candidate":
        """Put zeros where a problem has a number that is not finite."""
        # a sum of squares is cheaper than a look at each number; where it overflows, the numbers are looked at
        if all(math.isfinite(np.vdot(part, part)) for part in (self.weights, self.multipliers)):
            return self
        lost_weights = ~np.isfinite(self.weights).all(axis=(-2, -1), keepdims=True)
        lost_multipliers = ~np.isfinite(self.multipliers).all(axis=(-3, -2, -1), keepdims=True)
        return self._replace(
            weights=np.where(lost_weights, 0.0, self.weights),
            multipliers=np.where(lost_multipliers, 0.0, self.multipliers),
            ray=self.ray & ~lost_multipliers[..., 0, 0, 0],
        )

    def with_axes_of(self, constraints: Constraints) -> "Candidate":
        """Restore the batch axes of the constraints, which were joined to one, or left out for one problem."""
        batch = constraints.batch_shape
        return self._replace(
            weights=self.weights.reshape(*batch, *constraints.weights_shape),
            multipliers=self.multipliers.reshape(constraints.inequality.shape),
            ray=self.ray.reshape(batch),
            steps=self.steps.reshape(batch),
        )
