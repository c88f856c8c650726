"""The baselines: logistic regression on fixed features of the tokens, and a kernel method without attention."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from attsvm._utils.shapes import Float
from attsvm.problem import Problem, counted_labels, mean_tokens

FOLDS = 3

PENALTIES = np.logspace(-3, 2, 6)
"""Values of C among which cross-validation chooses."""

KERNEL_PENALTIES = np.logspace(-1, 3, 5)
"""Values of C for the kernel method."""

WIDTHS = tuple(2.0 ** np.arange(-3, 4))
"""Values of γ among which cross-validation chooses, in units of the reciprocal median squared distance of tokens."""

FEATURES = 2000

SAMPLE = 500
"""Tokens whose distances give the unit of the widths."""


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
        "mean token": tokens.mean(axis=1),
        "all tokens side by side": tokens.reshape(len(tokens), -1),
        "largest entries over the tokens": tokens.max(axis=1),
    }


def accuracy_on(parts: dict[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Accuracy of logistic regression on standardised features, with a penalty from three-fold cross-validation.

    ``parts``: features (N, F) and labels (N,) of ``train`` and of any other parts.
    """
    regression = LogisticRegression(solver="liblinear", max_iter=1000, intercept_scaling=10.0)
    # squares of huge features would overflow in the variance, and those of tiny ones vanish
    classifier = make_pipeline(MaxAbsScaler(), StandardScaler(), regression)
    return tuned_accuracy(classifier, {"logisticregression__C": PENALTIES}, parts)


def tuned_accuracy(classifier: Any, grid: dict[str, Any], parts: dict[str, tuple[Any, np.ndarray]]) -> dict[str, float]:
    """Accuracy on each part of a classifier that is :func:`tuned` on ``train``."""
    chosen, _ = tuned(classifier, grid, *parts["train"])
    return {name: float(chosen.score(features, labels)) for name, (features, labels) in parts.items()}


def tuned(classifier: Any, grid: dict[str, Any], features: Any, labels: np.ndarray) -> tuple[Any, float]:
    """Fit a classifier whose settings are chosen by three-fold cross-validation, and return its score there.

    ``grid``: settings, and the values among which the choice is made. With fewer sequences of a class than folds, the
    classifier has its own settings, and the score is its training accuracy.
    """
    # the products are small: several threads take many times longer than one
    with warnings.catch_warnings(), threadpool_limits(1, user_api="blas"):
        # the weakest penalties need not converge to classify well
        warnings.simplefilter("ignore", ConvergenceWarning)
        if min(np.unique(labels, return_counts=True)[1]) < FOLDS:
            classifier.fit(features, labels)
            return classifier, float(classifier.score(features, labels))
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        search = GridSearchCV(classifier, grid, cv=folds).fit(features, labels)
    return search.best_estimator_, float(search.best_score_)


def kernel_mean_accuracy(
    tokens: Float[np.ndarray, "n T d"],
    labels: Float[np.ndarray, " n"],
    test_tokens: Float[np.ndarray, "m T d"],
    truth: Float[np.ndarray, " m"],
    seed: int = 0,
) -> float:
    """Test accuracy of logistic regression on the mean of random Fourier features of the tokens.

    The features approximate the Gaussian kernel exp(−γ‖x − x'‖²), so this is a kernel classifier of bags of tokens. γ
    and the penalty are chosen by three-fold cross-validation on the training sequences; the features themselves do not
    depend on the data.

    ``tokens``, ``test_tokens``: sequences without masks. ``seed``: of the random features.

    References: Rahimi and Recht (2007), *Random Features for Large-Scale Kernel Machines*.
    """
    unit = 1 / _median_squared_distance(tokens, seed)
    best: tuple[float, float] | None = None
    for width in WIDTHS:
        sampler = RBFSampler(gamma=width * unit, n_components=FEATURES, random_state=seed)
        features, test_features = _means(sampler, tokens), _means(sampler, test_tokens)
        scale = np.abs(features).max()
        chosen, score = tuned(LogisticRegression(max_iter=300), {"C": KERNEL_PENALTIES}, features / scale, labels)
        if best is None or score > best[0]:
            best = score, float(chosen.score(test_features / scale, truth))
    assert best is not None
    return best[1]


def _means(sampler: RBFSampler, tokens: Float[np.ndarray, "n T d"]) -> Float[np.ndarray, "n F"]:
    n, T, d = tokens.shape
    rows = tokens.reshape(-1, d).astype(np.float32)  # cosines of float32 take a fraction of the time
    features: np.ndarray = sampler.fit_transform(rows).reshape(n, T, -1).mean(axis=1)
    return features


def _median_squared_distance(tokens: Float[np.ndarray, "n T d"], seed: int) -> float:
    rows = tokens.reshape(-1, tokens.shape[-1])
    chosen = np.random.default_rng(seed).choice(len(rows), size=min(SAMPLE, len(rows)), replace=False)
    distances = pairwise_distances(rows[chosen], metric="sqeuclidean")
    median = float(np.median(distances[np.triu_indices(len(chosen), 1)]))
    return median or 1.0  # most tokens are equal
