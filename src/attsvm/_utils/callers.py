"""Warnings at the line of the user who called."""

import sys
import warnings

BETWEEN = {"attsvm", "joblib", "sklearn"}
"""Packages whose functions may lie between the line of the user and a warning."""


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called this package, itself or through a part of scikit-learn."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
