"""The cross-entropy −log softmax(f)_y of class scores."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attsvm.losses.base import OutputLoss, Outputs, Slope
from attsvm.losses.registry import LOSSES

Array = jax.Array


@dataclass(frozen=True)
class CrossEntropy(OutputLoss):
    """−log softmax(f)_y of class scores f, for labels 0..C−1.

    See Also
    --------
    attsvm.losses.parse_loss

    Examples
    --------
    >>> import numpy as np
    >>> from attsvm.losses import CrossEntropy
    >>> CrossEntropy().name
    'cross_entropy'
    """

    name = "cross_entropy"
    takes = Outputs.CLASS_SCORES
    defined_everywhere = True

    def values(self, outputs: Array, labels: Array) -> Array:
        """log(1 + Σ_{c≠y} exp(f_c − f_y)) of each query."""
        return self._gap(outputs, labels)[1]

    def slope(self, outputs: Array, labels: Array) -> Slope:
        """softmax(f) − onehot(y) = (1 − softmax_y) · (softmax over the others − onehot(y)), without cancellation."""
        others, value = self._gap(outputs, labels)
        wrong = others - jax.nn.logsumexp(others, axis=2, keepdims=True)
        direction = jnp.where(jnp.isneginf(others), -1.0, jnp.exp(wrong))
        return Slope(direction, jax.nn.logsumexp(others, axis=2) - value)

    @staticmethod
    def _gap(outputs: Array, labels: Array) -> tuple[Array, Array]:
        """f_c − f_y for the wrong classes (−inf for the right one), and the loss log(1 + Σ exp(f_c − f_y))."""
        classes = jax.lax.broadcasted_iota(jnp.int32, (1, 1, outputs.shape[2], 1), 2)
        right = classes == labels[:, :, None]
        own = jnp.sum(jnp.where(right, outputs, 0.0), axis=2, keepdims=True)
        others = jnp.where(right, -jnp.inf, outputs - own)
        return others, jax.nn.softplus(jax.nn.logsumexp(others, axis=2))


LOSSES.register("cross_entropy", CrossEntropy())
