"""Attention masks of PyTorch, read as the tokens that each query may attend to and as biases of positions."""

import torch
from torch import Tensor

from attsvm.errors import ProblemError

LOWEST = -1e4
"""An additive mask excludes a token where it is at most this; other values than 0 add to the logits."""


def allowed_entries(mask: Tensor) -> Tensor:
    """Where a mask, additive or of booleans, lets a query attend."""
    return mask if mask.dtype == torch.bool else mask > LOWEST


def joined_masks(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """One mask that excludes what either of two masks excludes, and adds the biases of both elsewhere."""
    if one is None or other is None:
        return other if one is None else one
    if one.dtype == other.dtype == torch.bool:
        return one & other
    if one.dtype == torch.bool:
        return other.masked_fill(~one, -torch.inf)
    return one.masked_fill(~other, -torch.inf) if other.dtype == torch.bool else one + other


def allowed_tokens(mask: Tensor | None, b: int, Q: int, T: int) -> Tensor:
    """The tokens (b, Q, T) that each query may attend to.

    ``mask``: shape (Q, T), or (b, heads, Q, T) with axes of length 1 where it does not vary.

    Raises ProblemError if it differs between heads.
    """
    if mask is None:
        return torch.ones(b, Q, T, dtype=torch.bool)
    allowed = allowed_entries(mask)
    if allowed.ndim == 4:
        if bool((allowed != allowed[:, :1]).any()):
            raise ProblemError("model: expected one attention mask for all heads, got masks that differ between heads")
        allowed = allowed[:, 0]
    return allowed.expand(b, Q, T)


def biases_of(mask: Tensor | None, b: int, heads: int, Q: int, T: int) -> Tensor | None:
    """What a mask adds to the logits (b, heads, Q, T), as T5 and ALiBi do; None for nothing."""
    if mask is None or mask.dtype == torch.bool:
        return None
    biases = mask.masked_fill(~allowed_entries(mask), 0.0)
    return biases.expand(b, heads, Q, T) if bool(biases.any()) else None
