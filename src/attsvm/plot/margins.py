"""The margin of each dropped token."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm._utils.checks import selection_of
from attsvm.errors import ProblemError
from attsvm.measures import token_logits
from attsvm.plot import style
from attsvm.plot.attention import single_weights
from attsvm.plot.canvas import ink, line, one_axes
from attsvm.problem import Problem
from attsvm.selection import selection_sets


def margins(problem: Problem, weights: Any, selected: Any = None, *, ax: Axes | None = None) -> Axes:
    """Draw (k_α − k_t)'Wz of every dropped token t, over the smallest of them. Support tokens are at 1.

    Parameters
    ----------
    problem : Problem
        Without batch axes.
    weights : Run, Solution, Prediction, or ndarray, shape (d_k, d_q) or (d_k,)
    selected : int ndarray, shape (n[, Q]), Run, Solution or Prediction, optional
        One token for each query. By default the selection of ``weights``, if they are a result.
    ax : Axes, optional

    Raises
    ------
    ProblemError
        If there are batch axes, several heads or sets of tokens.

    See Also
    --------
    attsvm.plot.attention
    attsvm.Solution.plot

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> solution = attsvm.solve_svm(problem, attsvm.optimal_tokens(problem))
    >>> attsvm.plot.margins(problem, solution).get_ylabel()
    'margin / smallest margin'
    """
    logits = token_logits(problem, single_weights(problem, weights))
    kept = selection_sets(problem, selection_of(selected, weights))
    one = kept & problem.copies.distinct
    if (one.sum(axis=-1) > 1).any():
        raise ProblemError("selected: expected one token for each query, got a set")
    canonical = problem.canonical
    active = canonical.active
    dropped = (canonical.allowed & ~kept)[active]
    differences = np.where(one, logits, 0.0).sum(axis=-1, keepdims=True)[active] - logits[active]
    rows, _ = np.nonzero(dropped)
    values = differences[dropped]
    smallest = values.min() if values.size else 1.0
    separated = smallest > 0
    axis = one_axes(ax)
    with style.unless_set():
        axis.axhline(1.0 if separated else 0.0, color=ink(), linewidth=0.6)
        axis.scatter(rows, values / smallest if separated else values, s=10, color=line(0)["color"])
        axis.set_xlabel("query" if problem.has_query_axis else "sequence")
        axis.set_ylabel("margin / smallest margin" if separated else "margin (the selection is not separated)")
    return axis
