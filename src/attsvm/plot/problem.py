"""``problem.plot()``: the tokens in the plane."""

import numpy as np
from matplotlib.axes import Axes

from attsvm.plot import style
from attsvm.plot.canvas import ink, line, one_axes
from attsvm.problem import Problem
from attsvm.selection import optimal_tokens

_MOST_SEQUENCES = 6


def problem(problem: Problem, *, ax: Axes | None = None) -> Axes:
    """Draw it as :meth:`attsvm.Problem.plot` says."""
    first = problem if not problem.batch_shape else problem[(0,) * len(problem.batch_shape)]
    some = first.tokens[:_MOST_SEQUENCES]
    used = np.asarray(first.canonical.allowed.any(axis=-2))[:_MOST_SEQUENCES]
    points, names = _plane_points(some, used)
    axis = one_axes(ax)
    with style.unless_set():
        for i, (row, mask) in enumerate(zip(points, used, strict=True)):
            axis.scatter(row[mask, 0], row[mask, 1], s=14, rasterized=True, color=line(i)["color"])
        if first.labels is not None and first.head is not None and first.num_classes is None:
            optimal = optimal_tokens(first)[:_MOST_SEQUENCES].reshape(len(points), -1)
            rows, queries = np.nonzero(optimal >= 0)
            best = np.unique(points[rows, optimal[rows, queries]], axis=0)
            axis.scatter(best[:, 0], best[:, 1], s=70, facecolors="none", edgecolors=ink(), linewidths=0.9)
        axis.set_xlabel(names[0])
        axis.set_ylabel(names[1])
    return axis


def _plane_points(tokens: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    if tokens.shape[-1] == 1:
        return np.concatenate([tokens, np.zeros_like(tokens)], axis=-1), ("entry 0", "")
    if tokens.shape[-1] == 2:
        return tokens, ("entry 0", "entry 1")
    centre = tokens[used].mean(axis=0)
    _, _, directions = np.linalg.svd(tokens[used] - centre, full_matrices=False)
    directions = np.concatenate([directions, np.zeros((2, tokens.shape[-1]))])[:2]
    return (tokens - centre) @ directions.T, ("first principal component", "second principal component")
