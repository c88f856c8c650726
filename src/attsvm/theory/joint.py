"""The direction of a run that trains the head together with the attention."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from attsvm.norms import Norm
from attsvm.optimizers import Limit, Standing
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.svm import Solution, solve_head, solve_svm
from attsvm.theory.feasibility import is_feasible
from attsvm.theory.joint_conditions import least_score_gap
from attsvm.theory.standing import rank_for
from attsvm.theory.trained import Trained
from attsvm.training import Run

FEWEST = 3
"""Records that a trend needs."""
TREND = 0.1
"""Two radii grow at the same rate if their ratio changes by less than this power of the number of steps."""


class Joint(NamedTuple):
    """The Att-SVM, relaxed or plain, and the max-margin head."""

    solution: Solution
    head: Solution
    relaxed: Bool[np.ndarray, "*queries"]
    limit: Limit


def joint_direction(problem: Problem, run: Run, part: Trained, used: Norm, known: Limit) -> Joint:
    """Relaxed if the radius of the head grows faster than that of the attention, plain otherwise.

    ``part`` is the run in its trained parameters, ``known`` what is known of its limit.
    """
    head = solve_head(problem, run.selected, used.of_vectors)
    active = np.broadcast_to(problem.canonical.active, (*run.batch_shape, *problem.canonical.active.shape[-2:]))
    active = active.reshape(run.selected.shape)
    own = tuple(range(len(run.batch_shape), active.ndim))
    solved = np.asarray(head.status) == Status.OPTIMAL
    slack = active & ~head.support & np.expand_dims(solved, own)
    trend = _radius_trend(run, part, used)
    relaxed = slack & np.expand_dims(trend > TREND, own)
    solution = solve_svm(part.problem, run.selected, norm=used, relaxed=relaxed, rank=rank_for(run, used))
    # the standing of a batch is that of its least certain trial
    settled = np.asarray(~slack.any(axis=own) | (np.abs(trend) > TREND)).all()
    separable = solved & is_feasible(solution) & (least_score_gap(problem, run.selected, head, slack) > 0)
    missing = [
        reason
        for holds, reason in (
            (separable.all(), "the selected tokens are not separable, or not the best ones for the max-margin head"),
            (used == known.norm, "the norm is not that of the run"),
            (known.trained_head is not None, "steps of this kind were not measured with a trained head"),
            (settled, "neither radius grows faster than the other"),
        )
        if not holds
    ]
    if missing or known.trained_head is None:
        return Joint(solution, head, relaxed, Limit(used, source=f"no theorem: {missing[0]}"))
    return Joint(solution, head, relaxed, Limit(used, Standing.MEASURED, known.trained_head))


def _radius_trend(run: Run, part: Trained, norm: Norm) -> np.ndarray:
    """Slope of log(r/R) against log(step) in the last decade of steps of a trial: r of v, R of the attention."""
    steps = run.history["steps"]
    heads = norm.of_vectors.values(run.history["v"], 1).reshape(len(steps), -1)
    weights = norm.values(part.history, 2 if part.problem.has_queries else 1).reshape(len(steps), -1)
    last = np.broadcast_to(run.step, run.batch_shape).reshape(-1)
    trend = np.zeros(last.size)
    for i in range(last.size):
        # later records repeat the last weights of a trial that stopped
        late = (steps >= last[i] / 10) & (steps <= last[i]) & (steps > 0) & (heads[:, i] > 0) & (weights[:, i] > 0)
        if late.sum() >= FEWEST:
            trend[i] = np.polyfit(np.log(steps[late]), np.log(heads[late, i] / weights[late, i]), 1)[0]
    return trend.reshape(run.batch_shape)
