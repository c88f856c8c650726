"""Parts of criteria and tables: which runs are decided, and numbers in sentences and rows."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from attsvm._utils.shapes import Bool, Float
from attsvm.measures import direction_error
from attsvm.pages import number
from attsvm.papers.figure import Arrays
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.svm import solve_svm
from attsvm.theory import SATURATED, margin_ratio
from attsvm.training import Run


def undecided(probability: Float[np.ndarray, "..."], axes: int = 1) -> Bool[np.ndarray, "..."]:
    """Whether the largest probability of a sequence is below 1 by more than :data:`attsvm.theory.kinds.SATURATED`.

    ``probability``: of :class:`attsvm.Run`. ``axes``: how many last axes belong to a run, 2 with several queries or
    attention heads.
    """
    return np.asarray((1 - probability).max(axis=tuple(range(-axes, 0))) > SATURATED)


def compared(problem: Problem, run: Run, norm: str = "frobenius") -> Arrays:
    """Direction errors of a run to the Att-SVM of the tokens that it selects, at each record but the start.

    ``undecided`` and ``feasible`` say for which problems of a batch the comparison counts.
    """
    solution = solve_svm(problem, run.selected, norm)
    axes = tuple(range(-2 if problem.has_queries else -1, 0))
    return {
        "steps": run.history["steps"][1:],
        "error": np.asarray(direction_error(run.history["weights"][1:], np.nan_to_num(solution.direction), axis=axes)),
        "undecided": undecided(run.probability, axes=2 if problem.has_query_axis else 1),
        "feasible": np.asarray(solution.status) == Status.OPTIMAL,
    }


def pooled(found: Arrays, key: str, cases: Iterable[object]) -> np.ndarray:
    """All numbers ``"key case"`` of a measurement, of each of the cases, in one dimension."""
    return np.concatenate([np.ravel(found[f"{key} {case}"]) for case in cases])


def margin_ratios(problem: Problem, run: Run, norms: Iterable[str]) -> Float[np.ndarray, "problems norms"]:
    """Margin ratio of each run of a batch in each norm."""
    norms = list(norms)
    return np.array(
        [
            [margin_ratio(problem[i], run.weights[i], run.selected[i], norm) for norm in norms]
            for i in range(len(run.weights))
        ]
    )


def own_and_largest_other(ratio: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each optimiser's ratio in its own norm, and its largest in another, (optimisers, problems)."""
    index = own[:, None, None]
    others = np.where(np.arange(ratio.shape[-1]) == index, -np.inf, ratio)
    return np.take_along_axis(ratio, index, axis=-1)[..., 0], others.max(axis=-1)


def median_of(values: Float[np.ndarray, "..."]) -> float:
    return float(np.median(values))


def numbers(values: Iterable[Any], between: str = " / ") -> str:
    """Each value as pages write it."""
    return between.join(number(float(value)) for value in values)


def with_names(values: Mapping[str, float], between: str = ", ") -> str:
    """Numbers of a sentence.

    Examples
    --------
    >>> from attsvm.papers.judging import with_names
    >>> with_names({"W": 1e-6, "(K, Q)": 2e-4})
    '1.0e-06 (W), 2.0e-04 ((K, Q))'
    """
    return between.join(f"{value:.1e} ({name})" for name, value in values.items())
