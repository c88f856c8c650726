"""Regularization paths: the minimisers of the loss over balls of increasing radius, which converge to an Att-SVM.

:func:`attsvm.regularization_path` is in ``path``. ``excess`` is the loss in logarithms (``scalar`` for one margin) and
``trust_region`` minimises over an ℓp ball. ``weight_ball`` finds the ball of a norm by the type of the norm;
``lp_ball`` and ``nuclear_ball`` are registered. ``branches`` and ``joint`` search the minima of one problem along the
radii of ``grid``. ``excess`` is the base of ``linear`` and ``nonlinear``, the losses under both kinds of head; far
along the path, where a nonlinear head keeps several tokens, ``kept_sets`` takes over. :func:`penalty_path` is in
``penalties``; ``penalised`` finds the minima for one problem.
"""

from attsvm.regularization import lp_ball, nuclear_ball  # noqa: F401  # they register themselves
from attsvm.regularization.head_function import HeadFunction
from attsvm.regularization.path import regularization_path
from attsvm.regularization.penalties import penalty_path
from attsvm.regularization.result import PenaltyPath, RegularizationPath
from attsvm.regularization.weight_ball import WeightBall, ball_of

__all__ = [
    "HeadFunction",
    "PenaltyPath",
    "RegularizationPath",
    "WeightBall",
    "ball_of",
    "penalty_path",
    "regularization_path",
]


def __dir__() -> list[str]:
    return sorted(__all__)
