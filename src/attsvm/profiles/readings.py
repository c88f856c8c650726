"""Readings of a profile while an optimiser trains: margin ratios, losses, and whether the attention is saturated."""

from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attsvm._utils.progress import Callback
from attsvm._utils.shapes import Bool, Float, Int
from attsvm.measures import attention_of, margin, token_logits
from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.profiles.pace import ReadingPace, first_factor
from attsvm.profiles.stepped import ProfileTask, RateFactor, Schedule, Stepped
from attsvm.selection import scores, selected_tokens
from attsvm.svm import solve_svm
from attsvm.training import parse_attention

SCHEDULES: dict[str, RateFactor] = {
    "growing": Schedule(lambda k: 1.0 + k / 100),
    "long decaying": Schedule(lambda k: 10.0 * (1.0 + k / 1000) ** (-1 / 3)),
    "constant": Schedule(lambda k: 1.0 + 0.0 * k),
    "decaying": Schedule(lambda k: (1.0 + k / 1000) ** (-1 / 3)),
}
"""Factors of the learning rate at step k. Those that take the weights furthest come first."""

PACES = {"paced": 0.3, "longer paced": 1.0}
"""Changes of a logit in the first steps, for learning rates that are found while an optimiser trains."""

_DECIDED = 1e-6


@dataclass(frozen=True)
class Reading:
    """One look at the weights of S problems."""

    step: int
    ratios: Float[np.ndarray, "S N"]  # margin ratios in each norm
    decided: Bool[np.ndarray, "S"]  # whether the attention is saturated
    change: Float[np.ndarray, "S"]  # the largest change of a logit in the last step
    loss: Float[np.ndarray, "S"]  # loss, distance: the loss, and the Frobenius distance of the weights from their start
    distance: Float[np.ndarray, "S"]
    finite: bool = True
    interrupted: bool = False

    def joined(self, other: "Reading") -> "Reading":
        """Join a look at further problems."""
        names = ("ratios", "decided", "change", "loss", "distance")
        arrays: dict[str, Any] = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names}
        finite, interrupted = self.finite and other.finite, self.interrupted or other.interrupted
        return replace(self, **arrays, finite=finite, interrupted=interrupted)


class ProblemPart:
    """Some of the problems of a task, on which an optimiser is trained and measured."""

    def __init__(self, one: Stepped, task: ProfileTask, rows: slice, norms: list[Norm]) -> None:
        self._one = one
        self._task = replace(task, problem=task.problem[rows], start={name: x[rows] for name, x in task.start.items()})
        self._ratios = MarginRatios(self._task.problem, norms)
        layer = parse_attention(task.attention, task.problem, None)
        self._start = layer.weights(self._task.start)
        self.steps, self.losses = task.steps, losses(self._task.problem, self._start)

    def factor(self, schedule: str) -> RateFactor:
        """The factor of a schedule; of a pace, the learning rate of the first steps is searched."""
        if schedule in SCHEDULES:
            return SCHEDULES[schedule]
        return ReadingPace(PACES[schedule], first_factor(self._one, self._task, PACES[schedule]))

    def readings(
        self, factor: RateFactor, looks: Iterable[int], callback: Callback | None, *, normalize: bool = True
    ) -> Generator[Reading, None, None]:
        """Read after so many steps with a factor of the learning rate."""
        looks = tuple(looks)
        marks = set(factor.marks(looks[-1]))
        factor.restart()
        every = tuple(sorted({*looks, *marks}))
        task = replace(self._task, looks=every, normalize=normalize, callback=callback)
        with closing(self._one.trajectory(task, factor)) as made:
            for look in made:
                if look.step in marks:
                    factor.correct(look.step, look.logit_change)
                if look.step not in looks and look.finite and not look.interrupted:
                    continue
                axes = tuple(range(1, look.weights.ndim))
                yield Reading(
                    look.step,
                    self._ratios(look.weights),
                    decided(task.problem, look.weights),
                    look.logit_change,
                    losses(task.problem, look.weights),
                    np.sqrt(((look.weights - self._start) ** 2).sum(axis=axes)),
                    look.finite,
                    look.interrupted,
                )


class MarginRatios:
    """Margin ratios of weights in each norm; the Att-SVM of a selection is solved once."""

    def __init__(self, problem: Problem, norms: list[Norm]) -> None:
        self._problem, self._norms = problem, norms
        self._values: dict[tuple[int, int, bytes], float] = {}

    def __call__(self, weights: Float[np.ndarray, "S ..."]) -> Float[np.ndarray, "S N"]:
        """The ratios with the selection of the weights; 0 where no weights separate it."""
        of_queries = selected_tokens(token_logits(self._problem, weights), self._problem.canonical.allowed)
        selected = of_queries.reshape(self._problem.query_shape)
        margins = [np.asarray(margin(self._problem, weights, selected, norm)) for norm in self._norms]
        values = [[self._value(s, n, selected[s]) for s in range(len(weights))] for n in range(len(self._norms))]
        return np.transpose(np.asarray(margins) * np.asarray(values))

    def _value(self, s: int, n: int, selected: Int[np.ndarray, "*query"]) -> float:
        key = s, n, selected.tobytes()
        if key not in self._values:
            value = float(solve_svm(self._problem[s], selected, self._norms[n]).value)
            self._values[key] = value if np.isfinite(value) else 0.0
        return self._values[key]


def losses(problem: Problem, weights: Float[np.ndarray, "S ..."]) -> Float[np.ndarray, "S"]:
    """The mean logistic loss of each problem."""
    attention = attention_of(problem, weights)
    values = scores(problem).reshape(attention.shape)
    margins = np.where(attention > 0, attention * values, 0.0).sum(axis=-1)
    active = problem.canonical.active
    return np.asarray(np.where(active, np.logaddexp(0, -margins), 0.0).sum(axis=(-2, -1)) / active.sum(axis=(-2, -1)))


def decided(problem: Problem, weights: Float[np.ndarray, "S ..."]) -> Bool[np.ndarray, "S"]:
    """Whether every query drops all tokens but one."""
    dropped = 1 - problem.copies.total(attention_of(problem, weights)).max(axis=-1)
    return np.asarray(((dropped <= _DECIDED) | ~problem.canonical.active).all(axis=(-2, -1)))
