"""Logistic regression on the mean token. It is loaded on first use, because importing scikit-learn takes a second."""

import numpy as np
from sklearn.linear_model import LogisticRegression

from attsvm._utils.shapes import Float
from attsvm.errors import ProblemError
from attsvm.problem.problem import Problem


def mean_tokens(problem: Problem) -> Float[np.ndarray, "N d"]:
    """Mean of the unmasked tokens of each unmasked query."""
    allowed, active = problem.canonical.allowed, problem.canonical.active
    means = allowed @ problem.tokens / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    of_active: np.ndarray = means[active]
    return of_active


def counted_labels(problem: Problem) -> Float[np.ndarray, " N"]:
    """The labels of the unmasked queries."""
    if problem.labels is None:
        raise ProblemError("problem: expected labels, but it has none")
    active = problem.canonical.active
    labels: np.ndarray = problem.labels.reshape(active.shape)[active]
    return labels


def mean_token_head(problem: Problem, trial: tuple[int, ...] = ()) -> Float[np.ndarray, " d"]:
    """Fit logistic regression without intercept on the mean token, and scale its coefficients to unit norm.

    ``problem``: with labels ±1 and no batch axes. ``trial``: its index in a batch, for the message.

    Raises ProblemError if there are no labels, or those of one class only, or the coefficients are zero.
    """
    features, labels = mean_tokens(problem), counted_labels(problem)
    if len(np.unique(labels)) != 2:
        where = f" in trial {', '.join(map(str, trial))}" if trial else ""
        raise ProblemError(f"labels: expected both -1 and 1 to fit a head, got only {labels[0]:g}{where}")
    # on features of size 1 the penalty is negligible; it only keeps v finite if the classes are separable
    scale = np.abs(features).max() or 1.0
    if not np.isfinite(scale):
        raise ProblemError("tokens: expected mean tokens that are numbers of float64, got an overflow; rescale them")
    regression = LogisticRegression(C=1e4, fit_intercept=False, max_iter=10_000)
    head = regression.fit(features / scale, labels).coef_[0]
    length = np.linalg.norm(head)
    if not length > 0:
        raise ProblemError("head: expected an array, because logistic regression on the mean token gives zero")
    unit: np.ndarray = head / length
    return unit
