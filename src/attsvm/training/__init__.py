"""From a problem and an optimiser to a run: attention trained until its direction converges.

``attention`` maps parameters to logits; ``objective`` joins attention, softmax pooling, prediction head and loss;
``loop`` compiles stretches of steps, and ``session`` spreads the trials over the cores; ``trainer`` has
:func:`attsvm.train` and ``run`` holds what it returns; ``stopping`` ends trials that have converged; ``gradient`` has
the gradient alone.
"""

# first: parts of JAX's import take ten times as long when they are called from deep within other imports
import jax  # noqa: F401

from attsvm._utils.doors import open_door

# for the other packages of attsvm, beside the public names
__door__ = (
    "ATTENTIONS",
    "Attention",
    "ProblemData",
    "Objective",
    "Setup",
    "gap_products",
    "logit_changes",
    "parse_attention",
    "pool",
    "recorded_attention",
    "records_to_the_end",
    "run_steps",
)
__getattr__, __dir__, __all__ = open_door(__name__, __file__, __door__)
