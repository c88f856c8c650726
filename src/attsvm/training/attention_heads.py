"""Several attention heads: where their axis goes between the parameters, the trials of the loop and the optimizer.

The logits, the pooling and the prediction head of H attention heads in B trials are computed as those of H·B trials, so
every parametrization and every prediction head is written for one head. Only the outputs of the heads are added up. The
gradient of each head keeps a scale of its own, however saturated the other heads are.

The axes of an array are (H, ..., B) for the callers of training, (..., H, B) in the state of a training, and
(..., H·B), with the trials running fastest, inside the objective. The two are one reshape apart. An optimizer sees
(..., H, B), with one scale for all heads, or each head as a parameter (..., B) with its own scale.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import settle
from attsvm.optimizers.scales import Scale, Scaled, Scales, of_head, shared_name, subtree
from attsvm.optimizers.sizes import over_all
from attsvm.training.attention import AnyArray, Parameters

Array = jax.Array


@dataclass(frozen=True)
class AttentionHeads:
    """The axis of heads. Equal ones share their compiled training."""

    number: int | None = None  # H; None for a problem without this axis, whose arrays all methods leave as they are
    apart: bool = False  # whether the optimizer sees each head as a parameter of its own

    @property
    def count(self) -> int:
        return self.number or 1

    def fold(self, x: AnyArray) -> AnyArray:
        """(..., H, B) as (..., H·B)."""
        return x if self.number is None else x.reshape(*x.shape[:-2], -1)

    def unfold(self, x: AnyArray) -> AnyArray:
        """(..., H·B) as (..., H, B)."""
        return x if self.number is None else x.reshape(*x.shape[:-1], self.number, -1)

    def first(self, x: AnyArray) -> AnyArray:
        """(..., H, B) as (H, ..., B)."""
        return x if self.number is None else jnp.moveaxis(x, -2, 0)

    def over(self, reduction: Callable[..., AnyArray], x: AnyArray) -> AnyArray:
        """Reduce the heads: (..., H·B) to (..., B), or 1 if all heads and trials share it."""
        return x if self.number is None or x.shape[-1] == 1 else reduction(self.unfold(x), axis=-2)

    def total(self, outputs: Array) -> Array:
        """The sum over the heads: (..., H·B) to (..., B)."""
        if self.number is None:
            return outputs
        apart = self.unfold(outputs)
        # term by term, so that the loop over the trials stays the innermost one
        summed: Array = reduce(jnp.add, (apart[..., h, :] for h in range(self.number)))
        return summed

    def repeated(self, x: Array, length: int) -> Array:
        """The same for all heads: (..., B or 1) to (..., H·B), which is the length."""
        if self.number is None:
            return x
        of_heads = jnp.broadcast_to(x[..., None, :], (*x.shape[:-1], self.number, length // self.number))
        return settle(self.fold(of_heads))

    def seen(self, parameters: Parameters) -> Parameters:
        """Parameters (..., H, B) as the optimizer sees them."""
        if self.number is None or not self.apart:
            return parameters
        length = next(iter(parameters.values())).shape[-1]
        folded = {name: self.fold(x) for name, x in parameters.items()}
        return {
            of_head(name, h): x[..., h * length : (h + 1) * length]
            for name, x in folded.items()
            for h in range(self.number)
        }

    def joined(self, seen: Parameters) -> Parameters:
        """The inverse of :meth:`seen`."""
        if self.number is None or not self.apart:
            return seen
        parts = {name: [seen[of_head(name, h)] for h in range(self.number)] for name in map(shared_name, seen)}
        # one behind the other, and not stacked: XLA vectorises the last axis
        return {name: self.unfold(jnp.concatenate(x, axis=-1)) for name, x in parts.items()}

    def scaled(self, gradient: Parameters, scales: Scales) -> Scaled:
        """A gradient (..., H·B) and its scales (H·B,) as the optimizer sees them."""
        if self.number is None:
            return Scaled(gradient, scales)
        groups: list[Scale] = []
        if self.apart:
            for group in scales.groups:
                logs = self.unfold(group.log)
                groups += [Scale(tuple(of_head(x, h) for x in group.names), logs[h]) for h in range(self.number)]
            parts = self.seen({name: self.unfold(g) for name, g in gradient.items()})
            return Scaled({name: settle(g) for name, g in parts.items()}, Scales(tuple(groups)))
        found: Parameters = {}
        for group in scales.groups:
            size = over_all(jnp.maximum, subtree(gradient, group.names), jnp.abs)
            # on the scale of the head whose gradient is the largest; one whose gradient is zero sets no scale
            largest = self.over(jnp.max, jnp.where(size > 0, group.log, -jnp.inf))
            joint = jnp.where(jnp.isneginf(largest), 0.0, largest)
            factor = jnp.exp(jnp.minimum(group.log - self.repeated(joint, group.log.shape[-1]), 0.0))
            found |= {name: self.unfold(gradient[name] * factor) for name in group.names}
            # rounding is monotone, so this is the largest of the products
            groups.append(Scale(group.names, joint, largest=self.over(jnp.max, size * factor)))
        return Scaled(found, Scales(tuple(groups)))


def fold(x: np.ndarray, heads_shape: tuple[int, ...]) -> np.ndarray:
    """An array (H, ..., B) of a problem with several heads as (..., H·B); others as they are."""
    return np.concatenate(list(x), axis=-1) if heads_shape else x
