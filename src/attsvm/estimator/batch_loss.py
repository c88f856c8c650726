"""The loss of the outputs of a batch, which a network with attention is trained with."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from attsvm.losses import LOSSES


class BatchLoss(ABC):
    """A loss of the outputs of a batch. Losses hold no data; equal ones share their compiled step."""

    @abstractmethod
    def value_and_slope(self, outputs: jax.Array, labels: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The loss of outputs (b, C), and its derivatives by them (b, C); compiled.

        ``labels``, ``weights``: (b,), weights divided by the number of sequences; zero for padding.
        """

    def intercept(self, intercept: jax.Array) -> jax.Array:
        """The intercept after a step; compiled."""
        return intercept


@dataclass(frozen=True)
class ClassLoss(BatchLoss):
    """Logistic loss for one output, cross-entropy for more."""

    def value_and_slope(self, outputs: jax.Array, labels: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The weighted sum of the losses; slopes keep their relative accuracy where they are small."""
        size = outputs.shape[1]
        loss = LOSSES.find("logistic" if size == 1 else "cross_entropy")
        # the losses have an axis of queries after the sequences, and a last one of trials
        shaped, labels = outputs.reshape((-1, 1, 1) if size == 1 else (-1, 1, size, 1)), labels[:, None, None]
        direction, log_slope = loss.slope(shaped, labels)
        slope = jnp.broadcast_to(direction, shaped.shape).reshape(-1, size)
        slope = slope * jnp.exp(log_slope[:, 0]) * weights[:, None]
        return jnp.sum(loss.values(shaped, labels) * weights[:, None, None]), slope
