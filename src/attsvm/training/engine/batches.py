"""Mini-batches of sequences."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attsvm.training.attention import AnyArray, Data

Array = jax.Array


@dataclass(frozen=True)
class MiniBatches:
    """Sequences drawn without replacement and shuffled anew in each epoch.

    The sequences of a step depend only on the seed and the number of the step, so a resumed run draws the same ones. If
    ``size`` does not divide the number of sequences, the remaining sequences of an epoch are not used in it.
    """

    num_sequences: int
    size: int  # sequences of a step, fewer than ``num_sequences``

    @property
    def steps_an_epoch(self) -> int:
        """Number of batches in an epoch."""
        return self.num_sequences // self.size

    def order(self, key: AnyArray, step: Array) -> Array:
        """The order of the sequences in the epoch of a step."""
        return jax.random.permutation(jax.random.fold_in(key, step // self.steps_an_epoch), self.num_sequences)

    def renewed(self, order: Array, key: AnyArray, step: Array) -> Array:
        """The order at a step, from that of the previous step: a new one at the beginning of an epoch."""
        begins = step % self.steps_an_epoch == 0
        renewed: Array = jax.lax.cond(begins, lambda: self.order(key, step), lambda: order)
        return renewed

    def take(self, data: Data, order: Array, step: Array) -> Data:
        """The sequences of a step, whose queries share the weight of the mean."""
        first = (step % self.steps_an_epoch) * self.size
        chosen = jax.lax.dynamic_slice_in_dim(order, first, self.size)
        taken = Data(*(None if x is None else jnp.take(x, chosen, axis=0) for x in data))
        total = jnp.sum(taken.query_weight, axis=(0, 1))
        return taken._replace(query_weight=taken.query_weight / jnp.where(total > 0, total, 1.0))
