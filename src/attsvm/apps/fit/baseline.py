"""Logistic regression on fixed features of the tokens: the baselines, and the head that training starts from."""

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression

from attsvm.apps.fit.evaluation import problem_labels
from attsvm.apps.tuning import tuned
from attsvm.errors import ProblemError
from attsvm.problem import Problem

MEAN_TOKEN = "mean token"

PENALTIES = np.logspace(-3, 2, 6)
"""Values of C among which cross-validation chooses."""


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
    head = regression.fit(features / scale, counted_labels(problem)).coef_[0]
    length = np.linalg.norm(head)
    if not length > 0:
        raise ProblemError(
            "head: expected a head in the problem, got none, and logistic regression on the mean token gives zero"
        )
    unit: np.ndarray = head / length
    return unit


def baseline_accuracy(train: Problem, test: Problem | None) -> dict[str, float]:
    """Accuracy of logistic regression on the mean token, with a cross-validated penalty.

    Parameters
    ----------
    train : Problem
    test : Problem or None

    Returns
    -------
    dict
        ``train`` and, if there is a test part, ``test``.
    """
    parts = {"train": train} if test is None else {"train": train, "test": test}
    return accuracy_on({name: (mean_tokens(part), counted_labels(part)) for name, part in parts.items()})


def fixed_features(problem: Problem) -> dict[str, Float[np.ndarray, "n F"]]:
    """Features of all tokens without attention, by their names.

    Parameters
    ----------
    problem : Problem
        Sequences of equally many tokens, without masks and queries.
    """
    tokens = problem.tokens
    return {
        MEAN_TOKEN: tokens.mean(axis=1),
        "all tokens side by side": tokens.reshape(len(tokens), -1),
        "largest entries over the tokens": tokens.max(axis=1),
    }


def accuracy_on(parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Accuracy of logistic regression on features, with the penalty chosen by three-fold cross-validation.

    Parameters
    ----------
    parts : dict
        Features (N, F) and labels (N,) of ``train`` and of any other parts.
    """
    features, labels = parts["train"]
    scale = np.abs(features).max() or 1.0
    regression = LogisticRegression(solver="liblinear", max_iter=1000, intercept_scaling=10.0)
    chosen, _ = tuned(regression, {"C": PENALTIES}, features / scale, labels)
    return {name: float(chosen.score(given / scale, truth)) for name, (given, truth) in parts.items()}


def counted_labels(problem: Problem) -> Float[np.ndarray, " N"]:
    """The labels of the unmasked queries."""
    labels: np.ndarray = problem_labels(problem)[problem.canonical.active]
    return labels
