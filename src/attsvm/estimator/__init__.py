"""A scikit-learn estimator: prompt attention with a linear head as a classifier of sequences, bags and sets.

``classifier`` is the estimator. ``inputs`` reads sequences, ``task`` their labels and weights, ``settings`` the
parameters. ``forward`` computes outputs and attention, and ``steps`` the gradient of a batch in ``coordinates``.
``fitting`` is the training loop and ``state`` what it passes on. ``margins`` solves the Att-SVM of the selection.
"""

from attsvm.estimator.classifier import AttentionClassifier
from attsvm.estimator.margins import MarginReport
from attsvm.estimator.settings import LEARNING_RATES

__all__ = ["LEARNING_RATES", "AttentionClassifier", "MarginReport"]
