"""Logistic regression on the mean token: the baseline, and the head that training starts from."""

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression

from attsvm.apps.fit.evaluation import problem_labels
from attsvm.errors import ProblemError
from attsvm.problem import Problem


def mean_tokens(problem: Problem) -> Float[np.ndarray, "N d"]:
    """Mean of the unmasked tokens of each unmasked query."""
    allowed, active = problem.canonical.allowed, problem.canonical.active
    means = allowed @ problem.tokens / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    of_active: np.ndarray = means[active]
    return of_active


def mean_token_head(problem: Problem) -> Float[np.ndarray, " d"]:
    """Fit logistic regression without intercept on the mean token, and scale its coefficients to unit norm.

    Parameters
    ----------
    problem : Problem
        With labels ±1 and no batch axes.

    Raises
    ------
    ProblemError
        If the coefficients are zero.
    """
    features = mean_tokens(problem)
    # on features of size 1 the penalty is negligible; it only keeps v finite if the classes are separable
    scale = np.abs(features).max() or 1.0
    regression = LogisticRegression(C=1e4, fit_intercept=False, max_iter=10_000)
    head = regression.fit(features / scale, _counted_labels(problem)).coef_[0]
    length = np.linalg.norm(head)
    if not length > 0:
        raise ProblemError(
            "head: expected a head in the problem, got none, and logistic regression on the mean token gives zero"
        )
    unit: np.ndarray = head / length
    return unit


def baseline_accuracy(train: Problem, test: Problem | None) -> dict[str, float]:
    """Accuracy of logistic regression on the mean token.

    Parameters
    ----------
    train : Problem
    test : Problem or None

    Returns
    -------
    dict
        ``train`` and, if there is a test part, ``test``.
    """
    scale = np.abs(mean_tokens(train)).max() or 1.0
    regression = LogisticRegression(max_iter=10_000).fit(mean_tokens(train) / scale, _counted_labels(train))
    parts = {"train": train} if test is None else {"train": train, "test": test}
    return {
        name: float(regression.score(mean_tokens(part) / scale, _counted_labels(part))) for name, part in parts.items()
    }


def _counted_labels(problem: Problem) -> Float[np.ndarray, " N"]:
    labels: np.ndarray = problem_labels(problem)[problem.canonical.active]
    return labels
