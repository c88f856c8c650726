"""The cone of local convergence that holds the weights of a run."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attsvm._utils.shapes import Float
from attsvm.losses import parse_margin_loss
from attsvm.problem import Problem
from attsvm.theory.local_conditions import DOUBLINGS, Cones, axis_of, cones_at, several
from attsvm.theory.loss_level import least_radius
from attsvm.training import Run

WIDER = 24
"""Cones that are tried, from the correlation of the weights up to the widest one, beside those by default."""
ROUNDING = 16 * np.finfo(np.float64).eps
"""Of a correlation."""

Numbers = Float[np.ndarray, "*batch"]


class Inside(NamedTuple):
    """Of each trial a cone that holds the weights and allows the step, of these the narrowest."""

    norm: Numbers
    """Norm of the weights over the radius of the cone; 0 if they have a smaller correlation, or there is no cone."""
    step: Numbers
    """Over the largest one."""
    opening: Numbers


def best_cone(problem: Problem, run: Run, step: Callable[[Cones], Numbers]) -> Inside:
    """Look for a cone that holds the weights of a run.

    ``step``: a step over the largest one for cones from a radius on, which is the norm of the weights.
    """
    core = 2 if problem.has_queries else 1
    weights = run.weights
    length = np.linalg.norm(weights.reshape(*weights.shape[: weights.ndim - core], -1), axis=-1)
    size = length * np.exp(run.log_scale)
    binary, loss = parse_margin_loss(problem, run.loss_name)
    solution, solved, optimal, tokens, widest = axis_of(binary, run.selected, loss)
    # seen = 1 − the correlation of W with the direction that was found
    product = np.sum(weights * np.nan_to_num(solution.direction), axis=tuple(range(-core, 0)))
    seen = 1 - product / (np.asarray(solution.value) * length)
    # D is known up to the gap, which bounds 1 − its correlation with the solution
    opening = (np.sqrt(np.maximum(seen, 0.0)) + np.sqrt(np.maximum(solution.gap, ROUNDING))) ** 2
    possible = solved & optimal & (opening < widest)
    between = np.geomspace(1.001 * np.minimum(opening, 1.0), np.maximum(0.999 * widest, ROUNDING), WIDER)
    openings = np.concatenate([several(widest), between])
    allowed = possible & (opening <= openings) & (openings < widest)

    # the cones that hold the weights; of a trial without one those that hold weights 2, 4, ... times as long
    radius = np.where(possible, size, 1.0)
    for _ in range(DOUBLINGS):
        # one opening at a time: there may be many tokens
        cones = Cones(*map(np.stack, zip(*(cones_at(tokens, one, radius) for one in openings), strict=True)))
        fits = allowed & cones.holds
        missing = allowed.any(axis=0) & ~fits.any(axis=0)
        if not missing.any():
            break
        radius = np.where(missing, 2.0 * radius, radius)
    with np.errstate(divide="ignore", invalid="ignore"):  # of cones that do not hold
        over = np.where(fits, step(cones), np.inf)
    best = np.argmin(np.where(over <= 1, 0.0, np.where(fits, 1.0, 2.0)) + openings, axis=0)[None]
    chosen, over, fits = (np.take_along_axis(x, best, axis=0)[0] for x in (openings, over, fits))
    least = least_radius(lambda radius: cones_at(tokens, chosen, radius).holds, fits, DOUBLINGS)
    return Inside(np.where(fits, size / least, 0.0), over, chosen)
