"""The radii of a path: the given ones, and others between and before them."""

import numpy as np

from attsvm.regularization.excess import Excess
from attsvm.regularization.weight_ball import WeightBall

GROWTH = 4.0
"""A radius is at most this many times the last one, since the saturation changes by the same factor."""
FIRST_LOGIT = 0.1
"""Size of the logits at the first radius, where the loss is nearly linear and has one minimum."""


def first_radius(excess: Excess, ball: WeightBall) -> float:
    """The radius up to which all differences of logits are small."""
    dual = ball.norm.dual
    # N* of (k_α − k_t) z', a product of rank one
    longest = np.max(dual.values(excess.keys, 1) * dual.values(excess.queries, 1)[:, None] * excess.allowed)
    return FIRST_LOGIT / float(longest)


def radius_grid(radii: np.ndarray, first: float) -> list[float]:
    """The radii, and others between and before them, so that none is more than four times the last."""
    grid = [min(first, float(radii[0]))]
    for radius in radii.tolist():
        steps = max(1, int(np.ceil(np.log(radius / grid[-1]) / np.log(GROWTH) - 1e-9)))
        between = grid[-1] * (radius / grid[-1]) ** (np.arange(1, steps) / steps)
        grid += [*between.tolist(), radius]
    return sorted(set(grid))


def joint_grid(radii: np.ndarray, head_radii: np.ndarray, first: float) -> list[tuple[float, float]]:
    """Pairs of radii between and before the given ones; before the first pair they keep its proportion."""
    scale = min(1.0, first / radii[0], FIRST_LOGIT / head_radii[0])
    both = np.stack([radii, head_radii], axis=1)
    grid = [tuple((scale * both[0]).tolist())]
    for target in both:
        last = np.array(grid[-1])
        steps = max(1, int(np.ceil(np.log((target / last).max()) / np.log(GROWTH) - 1e-9)))
        grid += [tuple((last * (target / last) ** (part / steps)).tolist()) for part in range(1, steps)]
        grid.append(tuple(target.tolist()))
    return sorted(set(grid))
