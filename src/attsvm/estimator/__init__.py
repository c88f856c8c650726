"""Scikit-learn estimators: classifiers of sequences, bags and sets.

``classifier`` is prompt attention with a linear head, ``detector_classifier`` detectors with non-negative weights; what
they share is in ``base``. Each has a network (``prompt``, ``detectors``; the interface is in ``network``), which
``fitting`` trains on ``batches``, in ``coordinates`` of its own. ``inputs`` reads sequences, ``task`` their labels and
weights, ``settings`` the parameters, which ``shared_documentation`` describes. ``validation`` chooses what early
stopping validates on. ``ensemble`` adds members for few sequences: ``ridge`` regressions on features of ``pooling``.
``report`` compares predictions with labels, and ``margins`` solves the Att-SVM of a selection.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "LEARNING_RATES",
    "SLACK",
    "Coordinates",
    "effective_number",
    "forward",
    "units_differ",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
