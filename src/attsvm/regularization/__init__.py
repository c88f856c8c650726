"""Regularization paths: the minimisers of the loss over balls of increasing radius, which converge to an Att-SVM.

:func:`attsvm.regularization_path` is in ``path``, with the search jointly in attention and prediction head, and
:func:`penalty_path` in ``penalties``. ``setting`` checks what they are given and joins the paths of a batch; ``result``
holds what they return. ``excess`` is the loss in logarithms under a fixed prediction head (``margin_losses``). Far
along the path, where a nonlinear prediction head keeps several tokens, ``kept_sets`` takes over. ``balls`` finds the
ball of a norm by the type of the norm, and ``trust_region`` minimises over it. Where the norm has one of the
``barriers``, ``interior_point`` minimises over the balls of many problems at once, of the loss in logarithms that
``stacked_excess`` has; ``barrier_balls`` chooses between both. ``branches`` follows the minima of one
problem along the radii, under a fixed prediction head or of both.
"""

from attsvm.regularization import barrier_balls as barrier_balls  # registers its balls
from attsvm.regularization.balls import WeightBall, ball_of
from attsvm.regularization.margin_losses import HeadFunction
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
