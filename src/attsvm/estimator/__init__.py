"""Scikit-learn estimators: classifiers of sequences, bags and sets.

``classifier`` is prompt attention with a linear head, ``detector_classifier`` detectors with non-negative weights; what
they share is in ``base``. Each has a network (``prompt``, ``detectors``; the interface is in ``network``), which
``fitting`` trains on ``batches``, in ``coordinates`` of its own. ``inputs`` reads sequences, ``task`` their labels and
weights, ``settings`` the parameters, which ``shared_documentation`` describes. ``margins`` solves the Att-SVM of a
selection, and ``instances`` measures scores of tokens.
"""

from attsvm.estimator.classifier import AttentionClassifier
from attsvm.estimator.detector_classifier import DetectorClassifier
from attsvm.estimator.instances import instance_auroc, instance_average_precision
from attsvm.estimator.margins import MarginReport
from attsvm.estimator.settings import LEARNING_RATES
from attsvm.estimator.token_net import TokenTransformer

__all__ = [
    "LEARNING_RATES",
    "AttentionClassifier",
    "DetectorClassifier",
    "MarginReport",
    "TokenTransformer",
    "instance_auroc",
    "instance_average_precision",
]


def __dir__() -> list[str]:
    return sorted(__all__)
