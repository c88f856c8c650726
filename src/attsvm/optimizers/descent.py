"""The rule of gradient descent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import elementwise
from attsvm.norms import Lp
from attsvm.optimizers.rule import ProportionalRule
from attsvm.optimizers.scales import Scales, Tree, subtree
from attsvm.optimizers.sizes import norm_of

Array = jax.Array


@dataclass(frozen=True)
class Descent(ProportionalRule):
    """Subtract the gradient: θ⁺ = θ − g. Its norm is ℓ2.

    See Also
    --------
    attsvm.optimizers.gradient_descent, attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import Descent, LearningRate, chain
    >>> chain(LearningRate(0.1), Descent()).norm.name
    'frobenius'
    """

    @property
    def norm(self) -> Lp:
        return Lp(2.0)

    @property
    def degree(self) -> int:
        return 0

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """Return the step −g."""
        updates: Tree = {}
        for group in scales.groups:
            own = subtree(gradient, group.names)
            factor = -group.factor(own)
            updates |= {name: elementwise(jnp.multiply, factor, g) for name, g in own.items()}
        return updates, state

    def size_of_weights(self, names: Iterable[str], params: Tree, state: Any) -> Array:
        """Compute the ℓ2 norm of these parameters."""
        return norm_of(self.norm, subtree(params, names))
