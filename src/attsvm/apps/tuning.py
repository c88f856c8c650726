"""The choice of the penalty of a baseline, by cross-validation on the training data."""

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

FOLDS = 3


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
