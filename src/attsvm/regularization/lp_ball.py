"""The entrywise ℓp ball, 1 < p < ∞."""

from dataclasses import dataclass

import numpy as np

from attsvm.norms import Lp
from attsvm.regularization.cones import CircularCone
from attsvm.regularization.kept_sets import Tail
from attsvm.regularization.objectives import Objective
from attsvm.regularization.trust_region import minimise
from attsvm.regularization.weight_ball import MAX_STEPS, Found, WeightBall, ball_of, no_ball


@dataclass(frozen=True)
class LpBall(WeightBall):
    """The matrices with ‖W‖_p ≤ radius."""

    norm: Lp

    @property
    def needs_dense_hessian(self) -> bool:
        """In a cone, and for p > 2, where the sphere is flat at zero entries."""
        return self.cone is not None or self.norm.p > 2

    @property
    def power(self) -> float:
        """Return p: ‖W‖_p^p is a sum over the entries."""
        return self.norm.p

    def steepest(self, gradient: np.ndarray) -> np.ndarray:
        """−sign(g)|g|^(q−1), of norm 1."""
        scaled = gradient / np.max(np.abs(gradient))
        direction = -np.sign(scaled) * np.abs(scaled) ** (1 / (self.norm.p - 1))
        return np.asarray(direction / self.size(direction))

    def minimise(self, objective: Objective, start: np.ndarray, radius: float) -> Found:
        """A local minimum, on the weights themselves."""
        minimum = minimise(objective, start, radius, self.norm.p, cone=self.cone, max_steps=MAX_STEPS)
        return self._found(objective, minimum.x, radius, minimum.pull)

    def minimise_tail(self, tail: Tail, start: np.ndarray, radius: float) -> Found | None:
        """The minimum, for the round ball (p = 2): across the fixed part it is a ball again."""
        left = radius**2 - float(tail.fixed @ tail.fixed)
        if self.norm.p != 2 or self.cone is not None or left <= 0:
            return None
        minimum = minimise(tail, tail.across.T @ start, float(np.sqrt(left)), max_steps=MAX_STEPS)
        return Found(tail.fixed + tail.across @ minimum.x, tail, max(minimum.residual, tail.residual))


@ball_of.register
def _(norm: Lp, shape: tuple[int, int], cone: CircularCone | None = None) -> LpBall:
    if not 1 < norm.p < np.inf:
        raise no_ball(norm)
    return LpBall(shape, norm, cone)
