"""Regularisation paths: the minimisers of the loss over balls of increasing radius, which converge to an Att-SVM.

:func:`attsvm.regularization_path` is in ``path``, with the search jointly in attention and prediction head, and
:func:`penalty_path` in ``penalties``. ``setting`` checks what they are given and joins the paths of a batch; ``result``
holds what they return. ``excess`` is the loss in logarithms under a fixed prediction head (``margin_losses``), a stack
of functions of ``gaps``; ``flat_excess`` is what a path asks about one of them. Far along the path, where a nonlinear
prediction head keeps several tokens, ``kept_sets`` takes over. ``balls`` finds the ball of a norm by the type of the
norm, and ``trust_region`` minimises over it. Where the norm has one of the ``barriers``, ``interior_point`` minimises
over the balls of many problems at once; ``barrier_balls`` chooses between both. ``head_balls`` has the balls of several
attention heads, and ``minimise_in_ball``, which other packages use. ``adam_barrier`` has that of AdamW's ε.
``branches`` follows the minima of one problem along the radii, under a fixed prediction head or of both.
"""

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "Excess",
    "LogSum",
    "Minima",
    "adam_points",
    "barrier_of",
    "block_diagonal",
    "check_balls",
    "minimise_in_ball",
    "order_of",
    "relative_gap",
    "scalar_of",
    "tolerance",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
