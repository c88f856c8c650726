"""Weights of linear layers as the query and key projections of heads."""

import numpy as np
import torch
from torch import Tensor

from attsvm.errors import ProblemError
from attsvm.inspect.weights import Projections

Linear = tuple[Tensor, Tensor | None]
"""Weight (rows, d) and bias (rows,) of a linear layer."""


def projections_of(
    query: Linear, key: Linear, *, heads: int, key_heads: int | None = None, scale: float
) -> Projections:
    """The projections of every head.

    ``query``, ``key``: weight and bias of the layers that make queries and keys, of shapes (heads · d_h, d_q) and
    (key_heads · d_h, d). ``key_heads``: where several query heads share one. ``scale``: factor of the logits.

    Raises ProblemError if the weights cannot be divided into these heads.
    """
    groups = heads if key_heads is None else key_heads
    rows, key_rows = len(query[0]), len(key[0])
    if rows % heads or key_rows % groups or heads % groups:
        raise ProblemError(
            f"model: projections of {rows} and {key_rows} rows do not fit {heads} heads and {groups} key heads"
        )
    return Projections(*_split(query, heads, heads), *_split(key, groups, heads), scale)


def as_array(tensor: Tensor) -> np.ndarray:
    """A tensor as a float64 NumPy array."""
    array: np.ndarray = tensor.detach().to(device="cpu", dtype=torch.float64).numpy()
    return array


def _split(layer: Linear, count: int, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (heads, d, d_h) and bias (heads, d_h): ``count`` parts, each repeated for the heads that share it."""
    weight, bias = as_array(layer[0]), None if layer[1] is None else as_array(layer[1])
    offsets = np.zeros(len(weight)) if bias is None else bias
    parts = weight.reshape(count, -1, weight.shape[1]).transpose(0, 2, 1)
    repeats = heads // count
    return np.repeat(parts, repeats, axis=0), np.repeat(offsets.reshape(count, -1), repeats, axis=0)
