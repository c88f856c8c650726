"""Regularization paths: the minimisers of the loss over balls of increasing radius, which converge to an Att-SVM.

:func:`attsvm.regularization_path` is in ``path`` and :func:`penalty_path` in ``penalties``; ``arguments`` checks what
they are given, ``result`` holds what they return. ``excess`` is the loss in logarithms (``log_losses``) under a
fixed prediction head (``head_function``); far along the path, where a nonlinear head keeps several tokens,
``kept_sets`` takes over. ``balls`` finds the ball of a norm by the type of the norm, and ``trust_region`` minimises
over it. ``branches`` follows the minima of one problem along the radii, of the attention
weights under a fixed head (``fixed_head``) or of both (``joint``).
"""

from attsvm.regularization.balls import WeightBall, ball_of
from attsvm.regularization.head_function import HeadFunction
from attsvm.regularization.path import regularization_path
from attsvm.regularization.penalties import penalty_path
from attsvm.regularization.result import PenaltyPath, RegularizationPath

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
