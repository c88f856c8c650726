"""Weights on a problem: the attention of each query, and the margin of each dropped token."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from attsvm._utils.checks import check_softmax, selection_of
from attsvm.errors import ProblemError
from attsvm.measures import attention_of, check_weights, token_logits
from attsvm.plot import style
from attsvm.plot.canvas import ink, line, one_axes
from attsvm.problem import Problem, check_is_problem
from attsvm.selection import optimal_tokens, selection_sets


def attention(problem: Problem, weights: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the attention as a heat map, a row for each query. A dot marks the optimal tokens, if they are known.

    Parameters
    ----------
    problem : Problem
        Without batch axes.
    weights : Run, Solution, Prediction, or ndarray, shape (d_k, d_q) or (d_k,)
    ax : Axes, optional

    Raises
    ------
    ProblemError
        If the problem or the weights have batch axes.

    See Also
    --------
    attsvm.plot.selection, attsvm.plot.margins

    Examples
    --------
    >>> import attsvm
    >>> problem = attsvm.datasets.random_problem(3, 4, 5, seed=0)
    >>> attsvm.plot.attention(problem, attsvm.train(problem, steps=50)).get_xlabel()
    'token'
    """
    check_softmax(weights, "weights")
    rows = attention_of(problem, _single_weights(problem, weights))
    rows = rows[problem.canonical.active]
    axis = one_axes(ax)
    with style.unless_set():
        image = axis.imshow(rows, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.figure.colorbar(image, ax=axis, label="attention")
        if problem.labels is not None and problem.head is not None and problem.num_classes is None:
            optimal = optimal_tokens(problem)
            optimal = optimal[optimal >= 0]
            axis.plot(optimal, np.arange(len(optimal)), "o", color=style.ORANGE, markersize=4, label="optimal token")
            axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
        axis.locator_params(integer=True)
        axis.grid(False)
        axis.set_xlabel("token")
        axis.set_ylabel("query" if problem.has_query_axis else "sequence")
    return axis


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
    logits = token_logits(problem, _single_weights(problem, weights))
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


def _single_weights(problem: Problem, weights: Any) -> np.ndarray:
    """The weights of one problem without several heads.

    Raises ProblemError if there are batch axes or several heads.
    """
    check_is_problem(problem)
    problem.check_one_head()
    found = check_weights(problem, weights)
    if problem.batch_shape or found.ndim != 1 + problem.has_queries:
        raise ProblemError("problem, weights: expected no batch axes; index both, as in problem[0], run[0]")
    return found
