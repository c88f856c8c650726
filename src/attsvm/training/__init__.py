"""From a problem and an optimiser to a run: attention trained into the limit.

``attention`` (parameters to logits), ``softmax`` (pooling and its exact backward), ``heads`` and ``losses`` are joined
by ``objective``; ``program`` compiles stretches of steps, ``trials`` spreads them over the cores, ``loop`` is
:func:`train`, ``run`` what it returns.
"""

from attsvm.training import heads, optimizers
from attsvm.training.loop import Progress, train
from attsvm.training.losses import Loss
from attsvm.training.run import Run

__all__ = ["Loss", "Progress", "Run", "heads", "optimizers", "train"]
