"""The scikit-learn face: prompt attention with a linear head as a classifier of sequences, bags and sets.

``inputs`` reads what users call sequences, ``forward`` computes outputs and attention, ``steps`` the gradient of a
batch, ``fitting`` is the loop with its early stopping, ``margins`` the Att-SVM of what was selected, ``classifier`` the
estimator.
"""

from attsvm.estimator.classifier import AttentionClassifier
from attsvm.estimator.margins import MarginReport

__all__ = ["AttentionClassifier", "MarginReport"]
