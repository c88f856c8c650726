"""From a problem and an optimizer to a run: attention trained until its direction converges.

``attention`` maps parameters to logits; ``objective`` joins attention, softmax pooling, prediction head and loss;
``loop`` compiles stretches of steps, and ``session`` spreads the trials over the cores; ``train`` is
:func:`attsvm.train` and ``run`` holds what it returns; ``stopping`` ends trials that have converged; ``gradient`` has
the gradient alone.
"""

# first: parts of JAX's import take ten times as long when they are called from deep within other imports
import jax  # noqa: F401

from attsvm.training.gradient import LossGradient
from attsvm.training.run import Run
from attsvm.training.stopping import Stopping
from attsvm.training.train import train

__all__ = ["LossGradient", "Run", "Stopping", "train"]


def __dir__() -> list[str]:
    return sorted(__all__)
