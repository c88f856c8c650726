"""The result of a fit."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from attsvm.apps.fit.evaluation import Evaluation
from attsvm.problem import Problem
from attsvm.results import Status
from attsvm.svm import Solution
from attsvm.training import Run

SOFT_BELOW = 0.99
"""Attention counts as saturated if the median over queries of the largest probability is at least this."""


@dataclass(frozen=True)
class Fit:
    """A trained attention classifier; with a fixed head also how close its weights came to an Att-SVM."""

    # train, test: the two parts of the data, with the final head; ``test`` is None if the test fraction is 0
    train: Problem
    test: Problem | None
    test_rows: Int[np.ndarray, " n_test"]  # indices of the test sequences in the source
    # the token that decides the label, of each ``train`` and ``test`` sequence; None if it is not known
    relevant: dict[str, Int[np.ndarray, " n"]] | None
    run: Run  # the training run
    on_train: Evaluation  # on_train, on_test: predictions and attention at the end of training
    on_test: Evaluation | None
    # accuracy of logistic regression on the mean token, with a cross-validated penalty: ``train``, ``test``
    baseline: dict[str, float]
    # the token of each training query with the highest score under the final head
    optimal_tokens: Int[np.ndarray, "*queries"]
    # optimal, chosen, relevant_svm: Att-SVMs of the optimal tokens, of the trained selection, and of the tokens that
    # decide the labels; None if the head was trained, and the last one if these tokens are not known
    optimal: Solution | None
    chosen: Solution | None
    relevant_svm: Solution | None
    # one entry for each recorded step: ``steps``, ``loss``, ``train_accuracy``, ``test_accuracy``, ``largest_low``,
    # ``largest_median``, ``largest_high`` (10, 50 and 90 % quantiles), ``norm``, ``changed`` (queries whose selection
    # differs from the final one), and ``direction_error`` to ``chosen`` (NaN at zero weights), unless the attention is
    # not saturated or there is no solution
    history: dict[str, np.ndarray]
    settings: dict[str, Any]  # how the layer was trained
    seconds: dict[str, float]  # wall time of ``training`` and of ``everything``

    @property
    def median_largest(self) -> float:
        """Median over the training queries of the largest softmax probability."""
        return float(np.median(self.on_train.largest))

    @property
    def soft(self) -> bool:
        """Whether the attention is not saturated. Its direction is then not compared with an Att-SVM."""
        return self.median_largest < SOFT_BELOW

    @property
    def right(self) -> dict[str, Bool[np.ndarray, " n"]] | None:
        """Whether the token that decides the label has the largest attention, for each sequence of each part."""
        if self.relevant is None:
            return None
        found = {"train": self.on_train, "test": self.on_test}
        return {part: on.attention[:, 0].argmax(axis=-1) == self.relevant[part] for part, on in found.items() if on}

    @property
    def interrupted(self) -> bool:
        """Whether training was stopped by the user."""
        return bool(self.run.status == Status.INTERRUPTED)
