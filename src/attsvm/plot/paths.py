"""The weights of runs in the plane."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from attsvm.errors import ProblemError
from attsvm.plot import style
from attsvm.plot.canvas import line, one_axes
from attsvm.results import Result
from attsvm.svm import Solution

if TYPE_CHECKING:
    from attsvm.training import Run


def paths(
    runs: "Mapping[str, Run] | Run", directions: Mapping[str, Any] | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the paths of weights in the plane, with their norm on a logarithmic scale, and directions as rays.

    Weights of more than two entries are projected onto the plane of the first two principal components of all
    directions that are drawn. At radius r the norm is 10^r − 1.

    Parameters
    ----------
    runs : Run, or dict of str to Run
        Without batch axes, of weights of one shape.
    directions : dict of str to Solution or ndarray, optional
        Rays, for example the Att-SVMs in several norms.
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
    >>> axes = attsvm.plot.paths({"GD": attsvm.train(problem, steps=50)}, {"Att-SVM": solution})
    >>> axes.get_aspect()
    1.0
    """
    named = {"": runs} if isinstance(runs, Result) else dict(runs)
    if any(run.batch_shape for run in named.values()):
        raise ProblemError("runs: expected runs without batch axes; index them, as in run[0]")
    points = {name: _flat(run.history["weights"]) for name, run in named.items()}
    rays = {
        name: _flat(np.asarray(x.direction if isinstance(x, Solution) else x, dtype=float)[None])[0]
        for name, x in (directions or {}).items()
    }
    sizes = {x.shape[-1] for x in (*points.values(), *rays.values())}
    if len(sizes) != 1:
        raise ProblemError(f"runs, directions: expected weights of one shape, got {sorted(sizes)} entries")
    plane = _plane(np.concatenate([*(_unit(x) for x in points.values()), *(_unit(x)[None] for x in rays.values())]))
    axis = one_axes(ax)
    with style.applied():
        longest = 0.1
        for number, (name, x) in enumerate(points.items()):
            radius = np.log10(1.0 + np.linalg.norm(x, axis=-1, keepdims=True))
            path = radius * _unit(x) @ plane.T
            longest = max(longest, float(np.abs(path).max()))
            axis.plot(*path.T, label=name or None, **line(number))
            axis.plot(*path[-1], "o", markersize=4, color=line(number)["color"])
        for name, ray in rays.items():
            end = 1.1 * longest * _unit(ray) @ plane.T
            axis.annotate(name, end, ha="center", va="center", fontsize=7)
            axis.plot([0, 0.95 * end[0]], [0, 0.95 * end[1]], color=style.INK, linewidth=0.7, linestyle=":")
        axis.set_aspect("equal")
        axis.set_xlabel("radius log$_{10}$(1 + norm)")
        if any(named):
            axis.legend()
    return axis


def _flat(weights: np.ndarray) -> np.ndarray:
    return weights.reshape(len(weights), -1)


def _unit(x: np.ndarray) -> np.ndarray:
    size = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(np.divide(x, size, out=np.zeros_like(x), where=size > 0))


def _plane(units: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the plane, (2, D)."""
    basis = np.eye(2) if units.shape[1] == 2 else np.linalg.svd(units, full_matrices=True)[2][:2]
    return np.asarray(basis)
