"""The direction of a run that trains the head together with the attention."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.svm import Solution, solve_head, solve_svm
from attsvm.theory.feasibility import is_feasible
from attsvm.theory.hypothesis import Hypothesis, at_worst
from attsvm.theory.joint_conditions import least_score_gap
from attsvm.theory.limit_of_run import rank_for
from attsvm.theory.trained import Trained
from attsvm.training import Run

FEWEST = 3
"""Records that a trend needs."""
TREND = 0.1
"""Two radii grow at the same rate if their ratio changes by less than this power of the number of steps."""


class Joint(NamedTuple):
    """The Att-SVM, relaxed or plain, the max-margin head, and what was assumed."""

    solution: Solution
    head: Solution
    relaxed: Bool[np.ndarray, "*queries"]
    hypotheses: list[Hypothesis]


def joint_direction(problem: Problem, run: Run, part: Trained, used: Norm) -> Joint:
    """Solve the relaxed Att-SVM if the radius of the head grows faster than that of the attention, else the plain one.

    ``part`` is the run in its trained parameters.
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
    settled = ~slack.any(axis=own) | (np.abs(trend) > TREND)
    separable = solved & is_feasible(solution)
    gap = least_score_gap(problem, run.selected, head, slack)
    rows = [
        at_worst("the selected tokens can be separated, by the head and from the others", separable, head.value),
        at_worst("the selected tokens are the best ones for the max-margin head", gap > 0, gap, "least gap of scores"),
        at_worst(
            "one radius, of head or attention, grows faster than the other, or no label has slack",
            settled,
            np.where(slack.any(axis=own), np.abs(trend), np.inf),
            "power of the steps",
        ),
    ]
    return Joint(solution, head, relaxed, rows)


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
