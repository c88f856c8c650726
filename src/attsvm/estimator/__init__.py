"""Scikit-learn estimators: classifiers of sequences, bags and sets.

``classifier`` is prompt attention with a linear head, ``detector_classifier`` detectors with non-negative weights; what
they share is in ``base``. Each has a network (``prompt``, ``detectors``; the interface is in ``network``), which
``fitting`` trains on ``batches``, in ``coordinates`` of its own. ``inputs`` reads sequences, ``task`` their labels and
weights, ``settings`` the parameters, which ``shared_documentation`` describes. ``margins`` solves the Att-SVM of a
selection.
"""

from attsvm.estimator.classifier import AttentionClassifier
from attsvm.estimator.detector_classifier import DetectorClassifier
from attsvm.estimator.margins import MarginReport

__all__ = [
    "AttentionClassifier",
    "DetectorClassifier",
    "MarginReport",
]


def __dir__() -> list[str]:
    return sorted(__all__)
