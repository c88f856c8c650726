"""How near a run is to its limit, and whether its start, losses and size are those of the runs that were measured."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from attsvm.errors import ProblemError
from attsvm.losses import Keeps, parse_loss
from attsvm.measures import correlation, margin
from attsvm.norms import Lp, Norm
from attsvm.problem import Problem
from attsvm.selection import scores
from attsvm.svm import Solution
from attsvm.theory.conditions import Hypothesis, at_most, worst_case
from attsvm.theory.hypotheses import BUILT_IN
from attsvm.theory.measured import Row, contents
from attsvm.theory.smoothness import derivatives
from attsvm.theory.trained import TrainedPart
from attsvm.training import Run

FLAT = 0.1
"""The power of the number of steps below which a distance to the limit decreases too slowly to count steps."""
NEAR = 0.9
"""The least margin ratio, or correlation with the predicted direction, of a run that is near its limit."""


class Place(NamedTuple):
    """Where the trials of a run are, and what else is compared with the runs that were measured."""

    measure: str  # "margin ratio" or "correlation"
    values: np.ndarray  # shape (trials,), NaN where it is not defined
    compared: tuple[Hypothesis, ...]

    def nearness(self, trials: Any = ..., row: Row | None = None) -> Hypothesis:
        """State that these trials are as near their limit as those of a row, if there is one, and as NEAR."""
        least, values = self._least(row), self.values[trials]
        return worst_case("near", f"the {self.measure} of the run is at least {least:.3g}", values >= least, values)

    def _least(self, row: Row | None) -> float:
        # the least of the measured runs, but never less than NEAR
        return NEAR if row is None or row.measure != self.measure else max(NEAR, min(row.first[1], row.last[1]))

    def more_steps(self, run: Run, trials: np.ndarray, row: Row) -> str:
        """How many more steps are needed, at the rate from the first to the last mean of a row; empty if it is flat."""
        (fewest, most), gaps = row.num_steps, (1 - row.first[0], 1 - row.last[0])
        value, least = float(self.values[trials].min()), self._least(row)
        if row.measure != self.measure or fewest == most or min(gaps) <= 0 or not value < least:
            return ""
        # 1 − ratio falls like k^(−power) between both means of the row, and is taken to do so from here on
        power, made = math.log(gaps[0] / gaps[1]) / math.log(most / fewest), int(np.max(run.step))
        more = made * ((1 - value) / (1 - least)) ** (1 / power) - made if power > FLAT else math.inf
        return f"; about {float(f'{more:.2g}'):,.0f} more steps at the measured rate" if more < 100 * most else ""


def place_of(
    part: TrainedPart, run: Run, solution: Solution, selected: np.ndarray, norm: Norm, direction: np.ndarray | None
) -> Place:
    """By the margin ratio of the weights that were trained, of all attention heads together or the least of theirs.

    ``direction``: in its place, one that is not that of a plain Att-SVM, with which the weights are compared.
    """
    compared = tuple(_compared(part, run))
    if direction is not None:
        own = tuple(range(len(run.batch_shape), run.weights.ndim))
        return Place("correlation", np.ravel(correlation(run.weights, direction, own)), compared)
    weights, values = part.weights, np.asarray(solution.value)
    try:
        found = np.asarray(margin(part.problem, weights, selected, norm))
    except ProblemError:  # every token is selected
        return Place("margin ratio", np.full(np.size(run.step), np.nan), compared)
    if part.problem.num_heads is not None and norm == Lp(2.0) and run.limit.steps.kind == "gradient":
        # in the norm of all heads one that has not begun to learn counts, however it points
        lengths = norm.values(weights, weights.ndim - found.ndim)
        least, values = np.min(found * lengths, axis=-1), np.linalg.norm(values, axis=-1)
        found = least / np.maximum(np.hypot.reduce(lengths, axis=-1), np.finfo(float).tiny)
    return Place("margin ratio", (found * values).reshape(np.size(run.step), -1).min(axis=-1), compared)


def _compared(part: TrainedPart, run: Run) -> Iterator[Hypothesis]:
    yield short_start(run.start, run.history, (run.history["weights"],))
    if part.attention == "prompt":
        size, most = part.problem.num_sequences / part.problem.key_dim, contents()["range"]["prompt"]
        yield Hypothesis("measured_size", f"n/d of the prompt is at most {most:g}, as measured", size <= most, size)
    if not part.trains_head and run.head == "linear" and run.keeps is not Keeps.LABEL_COMPONENT:
        yield even_slopes(part.problem, run)


def short_start(start: str, history: dict[str, np.ndarray], weights: tuple[np.ndarray, ...]) -> Hypothesis:
    """State that the start is short beside the weights at the end. ``weights``: at the records of the history."""
    most = contents()["range"]["start"]
    key, statement = "measured_start", f"the start is at most {most:g} of the weights at the end, as measured"
    if start == "zeros":
        return Hypothesis(key, statement, True, 0.0)
    if history["steps"][0] != 0:
        return Hypothesis(key, statement, None)
    # both lengths have a factor exp(log_scale) that may be no float; their quotient needs the difference only
    scale = np.ravel(history["log_scale"][0] - history["log_scale"][-1])
    first, last = (np.sqrt(sum(np.sum(x[k].reshape(len(scale), -1) ** 2, axis=-1) for x in weights)) for k in (0, -1))
    part = np.exp(scale) * np.divide(first, last, out=np.full(len(scale), np.inf), where=last > 0)
    return at_most(key, statement, part, most)


def even_slopes(problem: Problem, run: Run, outputs: np.ndarray | None = None) -> Hypothesis:
    """State that no query has a far flatter loss than another, whose tokens are then learned far later.

    ``outputs``: at the end of the run, shape (*batch_shape, n[, Q]); by default the scores of the selected tokens.
    """
    most = contents()["range"]["slopes"]
    key, statement = "measured_slopes", f"the slopes of the loss differ by a factor of at most {most:g}, as measured"
    loss = parse_loss(run.loss_name, None) if run.live_loss is None and run.loss_name in BUILT_IN else run.live_loss
    if loss is None or problem.head is None or problem.labels is None or problem.num_classes is not None:
        return Hypothesis(key, statement, None)
    if outputs is None:
        # once attention is saturated, the output is the score of the selected token, added up over heads
        of_tokens = np.broadcast_to(scores(problem), (*run.selected.shape, problem.num_tokens))
        outputs = np.take_along_axis(of_tokens, np.maximum(run.selected, 0)[..., None], axis=-1)[..., 0]
    active = np.asarray(run.selected >= 0)
    if problem.num_heads is not None:
        outputs = outputs.sum(axis=len(run.batch_shape))
        active = np.asarray(active.any(axis=len(run.batch_shape)))
    slopes = np.where(active, np.abs(derivatives(loss, outputs.ravel())[0]).reshape(outputs.shape), np.nan)
    slopes = slopes.reshape(np.size(run.step), -1)
    least, largest = np.nanmin(slopes, axis=-1), np.nanmax(slopes, axis=-1)
    factor = np.divide(largest, least, out=np.full(len(least), np.inf), where=least > 0)
    return at_most(key, statement, factor, most)
