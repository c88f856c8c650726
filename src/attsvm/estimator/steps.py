"""Batches, and the gradient of prompt attention on one; compiled as a part of a step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.datasets.sequences import Sequences
from attsvm.losses import LOSSES
from attsvm.training.engine.softmax import logit_gradient, pool

Array = jax.Array
Parameters = dict[str, Any]

FEWEST = 64
"""Smallest number of rows and sequences of a batch after padding, so that small batches share a compiled step."""


class Batch(NamedTuple):
    """The sequences of a step: the vector of each distinct token once, and the positions of the tokens.

    Attributes
    ----------
    rows : Array, shape (R, d)
        Vectors, centred and scaled; padded with zero rows.
    places : int Array, shape (b, T)
        Rows of the tokens.
    mask : bool Array, shape (b, T)
    labels : Array, shape (b,)
        ±1, or class numbers.
    weights : Array, shape (b,)
        Divided by the number of sequences; zero for padding.
    """

    rows: Any
    places: Any
    mask: Any
    labels: Any
    weights: Any


def gather(
    sequences: Sequences, chosen: np.ndarray, labels: np.ndarray, weights: np.ndarray, centre: np.ndarray, scale: float
) -> Batch:
    """Collect a batch. Sizes are rounded up, so that few different sizes are compiled.

    Vectors of words that occur several times are gathered once: a batch of 256 reviews has 60,000 words, of which
    10,000 are different.
    """
    width = _rounded_up(int(sequences.lengths[chosen].max()))
    ids, mask = sequences.padded_ids(chosen, width)
    used, inverse = np.unique(ids[mask], return_inverse=True)
    size, dtype = _rounded_up(max(len(chosen), FEWEST)), sequences.table.dtype
    rows = np.zeros((_rounded_up(max(len(used), FEWEST)), sequences.dim), dtype)
    rows[: len(used)] = (sequences.table[used] - centre) / scale
    filled = Batch(
        rows,
        np.zeros((size, width), np.int32),
        np.zeros((size, width), bool),
        np.ones(size, dtype),
        np.zeros(size, dtype),
    )
    filled.places[: len(chosen)][mask] = inverse
    filled.mask[: len(chosen)] = mask
    # the softmax of a padded sequence needs one token
    filled.mask[len(chosen) :, 0] = True
    filled.labels[: len(chosen)] = labels[chosen]
    filled.weights[: len(chosen)] = weights[chosen] / len(chosen)
    return filled


def objective_gradient(parameters: Parameters, batch: Batch, alpha: Any) -> tuple[Array, Parameters]:
    """Weighted mean loss plus α/2 (‖p‖² + ‖V‖²), and its gradient.

    The head is linear, so it is enough to pool the scores V x_t of the tokens. Softmax and gradient are those of
    :func:`attsvm.train`, and vectors occur in two matrix products only.

    Parameters
    ----------
    parameters : dict
        ``p`` (d,), ``V`` (C, d), with C = 1 for two classes, ``b`` (C,).
    batch : Batch
    alpha : float
    """
    p, V, b = parameters["p"], parameters["V"], parameters["b"]
    loss = LOSSES.find("logistic" if len(V) == 1 else "cross_entropy")
    with jax.default_matmul_precision("highest"):
        of_rows = batch.rows @ jnp.concatenate([p[:, None], V.T], axis=1)
        of_tokens = of_rows[batch.places]
        values = of_tokens[..., 1:, None]
        pooled = pool(of_tokens[:, None, :, :1], values, batch.mask[:, None, :, None])
        outputs = pooled.output[:, :, :, 0] + b
        binary = len(V) == 1
        outputs = outputs if binary else outputs[..., None]
        labels = batch.labels[:, None, None]
        direction, log_slope = loss.slope(outputs, labels)
        of_output = jnp.broadcast_to(direction, outputs.shape)
        of_output = of_output[..., None] if binary else of_output
        weights = batch.weights[:, None, None]
        of_logits, log_scale = logit_gradient(pooled, values, of_output, log_slope, weights)
        size = jnp.exp(log_slope[:, 0]) * batch.weights[:, None]
        of_output = of_output[:, 0, :, 0] * size
        attention = ((pooled.weight + pooled.is_winner) * pooled.probability)[:, 0]
        of_tokens = jnp.concatenate([(of_logits * jnp.exp(log_scale))[:, 0], attention * of_output[:, None, :]], axis=2)
        of_rows = jnp.zeros_like(of_rows).at[batch.places].add(of_tokens)
        gradient = batch.rows.T @ of_rows
    value = jnp.sum(loss.values(outputs, labels) * weights) + 0.5 * alpha * (jnp.sum(p * p) + jnp.sum(V * V))
    return value, {"p": gradient[:, 0] + alpha * p, "V": gradient[:, 1:].T + alpha * V, "b": of_output.sum(axis=0)}


def _rounded_up(size: int) -> int:
    """To 1, 2, 3, 4, 6, 8, 12, 16, ...: a power of two, or one and a half."""
    power = 1 << max(size - 1, 0).bit_length()
    return 3 * power // 4 if power >= 4 and size <= 3 * power // 4 else power
