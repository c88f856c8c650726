"""Scikit-learn estimators: classifiers and regressors of sequences, bags and sets.

``classifier`` and ``regressor`` are prompt attention with a linear head, ``detector_classifier`` detectors with
non-negative weights. What all estimators of sequences share is in ``base``, what classifiers share in
``sequence_classifier``, and what estimators with prompt attention share in ``prompt_estimator``. Each has a network
(``prompt``, ``detectors``; the interface is in ``network``), which ``fitting`` trains on ``batches``, in
``coordinates`` of its own. ``batch_loss`` is what prompt attention minimises; ``squared_loss``, ``quantile_loss`` and
``cox_loss`` are ``regression_loss``. ``inputs`` reads sequences, ``task`` and ``regression_task`` hold their labels and
weights, ``settings`` the parameters, whose descriptions ``shared_documentation`` puts into docstrings. ``validation``
chooses what early stopping validates on. ``ensemble`` adds members to classifiers for few sequences: ``ridge``
regressions on features of ``pooling``. ``predictions`` and ``regression_predictions`` are what a fitted estimator says
of the bags of a file, and ``bag_tokens`` which of their tokens decide. ``report``, ``regression_report`` and
``survival_report`` compare predictions with labels, and ``margins`` solves the Att-SVM of a selection.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "LEARNING_RATES",
    "SLACK",
    "Saveable",
    "Coordinates",
    "FileColumns",
    "effective_number",
    "forward",
    "read_as_fitted",
    "read_labels",
    "read_weights",
    "units_differ",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
