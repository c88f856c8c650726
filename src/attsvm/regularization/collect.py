"""From the points of single problems to the fields of a result, and from results to that of a batch."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from attsvm.norms import Norm
from attsvm.problem import Problem
from attsvm.regularization.point import Point
from attsvm.regularization.result import Path
from attsvm.results import Status
from attsvm.svm import solve_svm

P = TypeVar("P", bound=Path)


def status_of(solved: np.ndarray, stopped: bool) -> Status:
    """The status of the path of one problem."""
    return Status.INTERRUPTED if stopped else Status.OPTIMAL if bool(solved.all()) else Status.INACCURATE


def along_path(
    problem: Problem, points: Sequence[Point], norm: Norm, relaxed: np.ndarray | None = None, rank: int | None = None
) -> dict[str, Any]:
    """The fields that the points of one problem determine, and the direction they should converge to.

    ``problem``: without batch axes. ``norm``: of the Att-SVM. ``relaxed``: the queries that the Att-SVM relaxes.
    ``rank``: the largest rank of the Att-SVM.
    """
    selected = selected_tokens(problem, points)
    active = problem.canonical.active
    kept = np.zeros((len(points), *active.shape, problem.num_tokens), dtype=bool)
    for row, point in zip(kept, points, strict=True):
        row[active] = point.excess.kept(point.weights)
    if not problem.has_query_axis:
        kept = kept[:, :, 0]
    solution = solve_svm(problem, selected[-1] if _is_single(kept[-1]) else kept[-1], norm, relaxed=relaxed, rank=rank)
    weights = np.stack([point.weights for point in points])
    matrix = (problem.key_dim, problem.query_dim) if problem.has_queries else (-1,)
    return {
        "weights": weights.reshape(len(points), *matrix),
        "loss": np.array([point.excess.loss_at(point.weights) for point in points]),
        "log_excess": np.array([point.excess.value(point.weights) for point in points]),
        "selected": selected,
        "residual": np.array([point.residual for point in points]),
        "limit": solution.direction,
        "limit_status": Status(str(solution.status)),
        "kept": kept,
    }


def selected_tokens(problem: Problem, points: Sequence[Point]) -> np.ndarray:
    """The token of largest logit at each point, shape (L, n[, Q]); -1 for padded queries."""
    active = problem.canonical.active
    selected = np.full((len(points), *active.shape), -1)
    for row, point in zip(selected, points, strict=True):
        row[active] = np.argmax(point.excess.logits(point.weights), axis=1)
    return selected if problem.has_query_axis else selected[..., 0]


def _is_single(kept: np.ndarray) -> bool:
    return bool((kept.sum(axis=-1) <= 1).all())


def stacked(paths: Sequence[P], batch: tuple[int, ...]) -> P:
    """The paths of the problems of a batch as one; points and problems that were not reached are filled up."""
    longest = max(paths, key=lambda path: len(path.loss))
    number = int(np.prod(batch))
    changed: dict[str, Any] = {}
    for entry in fields(longest):
        role, first = entry.metadata["attsvm.role"], getattr(longest, entry.name)
        if first is None or role not in ("record", "trial"):
            continue
        values = [np.asarray(getattr(path, entry.name)) for path in paths]
        if role == "record":
            whole = np.full((len(first), number, *first.shape[1:]), _FILL[first.dtype.kind], dtype=first.dtype)
            for i, value in enumerate(values):
                whole[: len(value), i] = value
            changed[entry.name] = whole.reshape(len(first), *batch, *first.shape[1:])
        else:
            missing = np.asarray(Status.INTERRUPTED) if np.ndim(first) == 0 else np.full_like(first, np.nan)
            values += [missing] * (number - len(paths))
            changed[entry.name] = np.stack(values).reshape(*batch, *np.shape(first))
    return replace(longest, **changed)


_FILL = {"f": np.nan, "i": -1, "b": False}
