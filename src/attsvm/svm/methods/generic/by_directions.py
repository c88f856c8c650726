"""The proximal map of a norm by its steepest directions, with a fully corrective conditional gradient method.

The proximal point of x is a sum Σ w_j D_j of directions with N(D_j) ≤ 1 and w ≥ 0 that minimises
½‖x − Σ w_j D_j‖² + step Σ w_j. As long as the remainder x − Σ w_j D_j has a dual norm above the step, its steepest
direction is added, and all w_j are computed again. In the nuclear norm or ℓ2,1 the directions are orthogonal, and their
number is that of the singular values or rows that are left.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attsvm.norms import Norm
from attsvm.norms.wrapper import Wrapper
from attsvm.svm.methods.generic.quadratic import least_quadratic

MOST_DIRECTIONS = 400
"""With this many directions the sum is returned as it is."""

PRECISE = 1e-9
"""The dual norm of the remainder may exceed the step by this part of it."""

ORTHOGONAL = 1e-14
"""Products of directions below this are rounding errors."""

RIDGE = 1e-14
"""Added to the Gram matrix of the directions, relative to its largest entry."""


@dataclass(frozen=True)
class ByDirections(Wrapper):
    """A norm with ``steepest``, and a proximal map that uses nothing else."""

    def value(self, x: Any, axes: int = 2) -> Any:
        return self.of.value(x, axes)

    def values(self, x: Any, axes: int = 2) -> np.ndarray:
        return self.of.values(x, axes)

    @property
    def dual(self) -> Norm:
        return self.of.dual

    def steepest(self, g: Any) -> Any:
        return self.of.steepest(g)

    def prox(self, x: np.ndarray, step: float) -> np.ndarray:
        """The sum of at most :data:`MOST_DIRECTIONS` directions."""
        goal = x.reshape(-1)
        directions = np.empty((MOST_DIRECTIONS, goal.size))
        gram = np.empty((MOST_DIRECTIONS, MOST_DIRECTIONS))
        right = np.empty(MOST_DIRECTIONS)
        left = goal
        for k in range(MOST_DIRECTIONS):
            new = np.asarray(self.of.steepest(left.reshape(x.shape))).reshape(-1)
            if not new @ left > step * (1 + PRECISE):
                break
            directions[k], right[k] = new, new @ goal - step
            gram[k, : k + 1] = gram[: k + 1, k] = directions[: k + 1] @ new
            if np.abs(gram[k, :k]).max(initial=0.0) <= ORTHOGONAL:
                left = left - right[k] / gram[k, k] * new
                continue
            matrix = gram[: k + 1, : k + 1] + RIDGE * gram[: k + 1, : k + 1].max() * np.eye(k + 1)
            weights = least_quadratic(matrix, right[: k + 1], np.zeros(k + 1, bool))
            if weights is None:
                break
            left = goal - weights @ directions[: k + 1]
        return np.asarray((goal - left).reshape(x.shape))
