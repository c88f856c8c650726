"""Scikit-learn estimators: classifiers of sequences, bags and sets.

``classifier`` is prompt attention with a linear head, ``detector_classifier`` detectors with non-negative weights; what
they share is in ``base``. Each has a network (``prompt``, ``detectors``; the interface is in ``network``), which
``fitting`` trains on ``batches``, in ``coordinates`` of its own. ``inputs`` reads sequences, ``task`` their labels and
weights, ``settings`` the parameters, which ``shared_documentation`` describes. ``validation`` chooses what early
stopping validates on. ``report`` compares predictions with labels, and ``margins`` solves the Att-SVM of a selection.
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
    "units_differ",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
