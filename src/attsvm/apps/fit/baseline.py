"""Logistic regression on fixed features of the tokens: the baselines."""

import numpy as np
from jaxtyping import Float
from sklearn.linear_model import LogisticRegression

from attsvm.apps.tuning import tuned
from attsvm.problem import Problem
from attsvm.problem.mean_token import counted_labels, mean_tokens

MEAN_TOKEN = "mean token"

PENALTIES = np.logspace(-3, 2, 6)
"""Values of C among which cross-validation chooses."""


def baseline_accuracy(train: Problem, test: Problem | None) -> dict[str, float]:
    """Measure the accuracy of logistic regression on the mean token, with a cross-validated penalty.

    Returns the accuracy on ``train`` and, if there is a test part, on ``test``.
    """
    parts = {"train": train} if test is None else {"train": train, "test": test}
    return accuracy_on({name: (mean_tokens(part), counted_labels(part)) for name, part in parts.items()})


def fixed_features(problem: Problem) -> dict[str, Float[np.ndarray, "n F"]]:
    """Features of all tokens without attention, by their names.

    ``problem``: sequences of equally many tokens, without masks and queries.
    """
    tokens = problem.tokens
    return {
        MEAN_TOKEN: tokens.mean(axis=1),
        "all tokens side by side": tokens.reshape(len(tokens), -1),
        "largest entries over the tokens": tokens.max(axis=1),
    }


def accuracy_on(parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Accuracy of logistic regression on features, with the penalty chosen by three-fold cross-validation.

    ``parts``: features (N, F) and labels (N,) of ``train`` and of any other parts.
    """
    features, labels = parts["train"]
    scale = np.abs(features).max() or 1.0
    regression = LogisticRegression(solver="liblinear", max_iter=1000, intercept_scaling=10.0)
    chosen, _ = tuned(regression, {"C": PENALTIES}, features / scale, labels)
    return {name: float(chosen.score(given / scale, truth)) for name, (given, truth) in parts.items()}
