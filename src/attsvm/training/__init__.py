"""From a problem and an optimiser to a run: attention trained into the limit.

``attention`` (parameters to logits), ``softmax`` (pooling and its exact backward), ``heads`` and ``losses`` are joined
by ``objective``; ``program`` compiles stretches of steps, ``trials`` spreads them over the cores, ``loop`` is
:func:`train`, ``run`` what it returns.

``path`` follows minimisers over balls of growing radius: ``excess`` (the loss in logarithms), ``ball`` (minimise over a
ball), ``weight_ball`` (in which norm, through which parameters), ``path_result`` what it returns.
"""

from attsvm.training import heads, optimizers
from attsvm.training.loop import Progress, train
from attsvm.training.losses import Loss
from attsvm.training.path import regularization_path
from attsvm.training.path_result import Path
from attsvm.training.run import Run

__all__ = ["Loss", "Path", "Progress", "Run", "heads", "optimizers", "regularization_path", "train"]
