"""The weights of runs in the plane."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm._utils.checks import weights_of
from attsvm._utils.text import as_label
from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import line, named_runs, one_axes
from attsvm.problem import Problem
from attsvm.theory import predict_direction
from attsvm.training import Run

ENDS = "*Ds^vp"
"""Markers at the ends of rays, which tell them apart in grey."""


def paths(
    problem: Problem,
    runs: Mapping[str, Run] | Run,
    directions: Mapping[str, Any] | None = None,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Draw the paths of weights in the plane, with their norm on a logarithmic scale, and directions as rays.

    Weights of more than two entries are projected onto the plane of the first two principal components of all
    directions that are drawn. At radius r the norm is 10^r − 1.

    Parameters
    ----------
    problem : Problem
        That of the runs.
    runs : Run, or dict of str to Run
        Without batch axes, of weights of one shape.
    directions : dict of str to Solution, Prediction, Run or ndarray, optional
        Rays, for example the Att-SVMs in several norms. By default, the direction predicted for each run.
    ax : Axes, optional

    Raises
    ------
    ProblemError
        If there are batch axes, or the shapes differ.

    See Also
    --------
    attsvm.plot.compare

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.Problem([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 1.0], [0.0, 2.0]]], labels=[1, 1], head=[1.0, 0.0])
    >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    >>> axes = attsvm.plot.paths(problem, {"GD": attsvm.train(problem, steps=50)}, {"Att-SVM": solution})
    >>> axes.get_aspect()
    1.0
    """
    named = named_runs(problem, runs)
    if any(run.batch_shape for run in named.values()):
        raise ProblemError("runs: expected runs without batch axes; index them, as in run[0]")
    directions = _predicted(problem, named) if directions is None else directions
    if not isinstance(directions, Mapping):
        raise ProblemError(f"directions: expected a dict of directions by name, got {type(directions).__name__}")
    points = {name: _flat(run.history["weights"]) for name, run in named.items()}
    rays = {name: weights_of(x, f"directions: {name}").ravel() for name, x in directions.items()}
    sizes = {x.shape[-1] for x in (*points.values(), *rays.values())}
    if len(sizes) != 1:
        raise ProblemError(f"runs, directions: expected weights of one shape, got {sorted(sizes)} entries")
    plane = _plane(np.concatenate([*(_unit(x) for x in points.values()), *(_unit(x)[None] for x in rays.values())]))
    axis = one_axes(ax)
    with style.unless_set():
        longest = 0.1
        for number, (name, x) in enumerate(points.items()):
            radius = np.log10(1.0 + np.linalg.norm(x, axis=-1, keepdims=True))
            path = radius * _unit(x) @ plane.T
            longest = max(longest, float(np.abs(path).max()))
            axis.plot(*path.T, label=as_label(name) or None, **line(number))
            axis.plot(*path[-1], "o", markersize=4, color=line(number)["color"])
        for number, (name, ray) in enumerate(rays.items()):
            end = 1.1 * longest * _unit(ray) @ plane.T
            look = {"color": line(len(points) + number)["color"], "marker": ENDS[number % len(ENDS)], "markevery": [1]}
            axis.plot([0, end[0]], [0, end[1]], ":", linewidth=0.9, markersize=5, label=as_label(name), **look)
        axis.set_aspect("equal")
        axis.set_xlabel("radius log$_{10}$(1 + norm)")
        if any(named) or rays:
            # beside the axes, since rays of nearly equal directions leave no place for labels at their ends
            axis.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0))
    return axis


def _predicted(problem: Problem, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The direction that is predicted for each run, equal ones once."""
    found: dict[str, Any] = {}
    for name, run in runs.items():
        prediction: Any = predict_direction(problem, run)
        own = np.asarray(prediction.direction)
        if not any(np.array_equal(own, np.asarray(known.direction)) for known in found.values()):
            label = f"{prediction.norm.name} Att-SVM"
            found[f"{label} of {name}" if label in found else label] = prediction
    return found


def _flat(weights: np.ndarray) -> np.ndarray:
    return weights.reshape(len(weights), -1)


def _unit(x: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(np.divide(x, size, out=np.zeros_like(x), where=size > 0))


def _plane(units: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the plane, (2, D)."""
    basis = np.eye(2) if units.shape[1] == 2 else np.linalg.svd(units, full_matrices=True)[2][:2]
    return np.asarray(basis)
