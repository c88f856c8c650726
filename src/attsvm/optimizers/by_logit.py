"""Steps that change every logit by about the same amount, however large the weights are."""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax.numpy as jnp

from attsvm.optimizers.chain import Context, Transformation
from attsvm.optimizers.head_names import by_head
from attsvm.optimizers.scales import Scales, Tree


@dataclass(frozen=True)
class ByLogit(Transformation):
    """Divide the gradients by N(K) + N(Q), the sizes of all weights in the norm of the rule, the largest of the heads.

    A step of length η then changes the logits k'KQ'z of unit keys and queries by about η at most.

    See Also
    --------
    attsvm.optimizers.chain, attsvm.optimizers.Relative

    Examples
    --------
    >>> from attsvm.optimizers import ByLogit, Decaying, LearningRate, Steepest, chain
    >>> chain(ByLogit(), LearningRate(Decaying(0.3, 1000, 1 / 3)), Steepest("linf")).norm.name
    'linf'
    """

    @property
    def degree(self) -> int:
        """−1: steps are inversely proportional to the weights' size."""
        return -1

    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """Divide all gradients by the sum; by 1 where all weights are zero."""
        sizes = {name: context.rule.reach(name, context.params, context.of_rule) for name in gradient}
        whole = reduce(jnp.maximum, [reduce(jnp.add, [sizes[name] for name in names]) for names in by_head(gradient)])
        return gradient, scales.times(1.0 / jnp.where(whole > 0, whole, 1.0)), state
