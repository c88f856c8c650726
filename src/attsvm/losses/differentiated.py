"""Any function of the margin as a loss."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attsvm.losses.base import OutputLoss, Slope

Array = jax.Array


@dataclass(frozen=True)
class Differentiated(OutputLoss):
    """Any loss of the margin, differentiated by JAX. Training stalls where its slope underflows.

    Parameters
    ----------
    value : callable
        m ↦ ℓ(m), elementwise, of JAX arrays.

    See Also
    --------
    attsvm.losses.Loss : With the logarithm of the slope, which does not underflow.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from attsvm.losses import Differentiated
    >>> hinge = Differentiated(lambda m: jnp.maximum(0, 1 - m))
    >>> hinge.values(jnp.array([[[0.25]]]), jnp.array([[[1.0]]])).tolist()
    [[[0.75]]]
    """

    value: Callable[[Array], Array]

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self.value, "__name__", "loss")

    def values(self, outputs: Array, labels: Array) -> Array:
        """ℓ(y f) of each query."""
        return self.value(labels * outputs)

    def slope(self, outputs: Array, labels: Array) -> Slope:
        """Compute y ℓ'(y f) of each query."""
        margins = labels * outputs
        _, derivative = jax.jvp(self.value, (margins,), (jnp.ones_like(margins),))
        return Slope(labels * jnp.sign(derivative), jnp.log(jnp.abs(derivative)))
