"""Regularisation paths: the minimisers of the loss over balls of growing radius, and the Att-SVM that they go to.

``path`` is :func:`regularization_path`: ``excess`` (the loss in logarithms), ``ball`` (minimise over a ball),
``weight_ball`` (in which norm, through which parameters), ``arguments`` what a user passes, ``result`` what comes back.
"""

from attsvm.regularization.path import regularization_path
from attsvm.regularization.result import Path

__all__ = ["Path", "regularization_path"]
