"""Attention masks of PyTorch, read as the tokens that each query may attend to."""

import torch
from torch import Tensor

from attsvm.errors import ProblemError

LOWEST = -1e4
"""An additive mask excludes a token where it is at most this; other values than 0 add to the logits."""


def allowed_entries(mask: Tensor) -> Tensor:
    """Where a mask, additive or of booleans, lets a query attend."""
    return mask if mask.dtype == torch.bool else mask > LOWEST


def allowed_tokens(mask: Tensor | None, b: int, Q: int, T: int) -> Tensor:
    """The tokens that each query may attend to.

    Parameters
    ----------
    mask : Tensor or None
        Additive, or of booleans (True where a query may attend); shape (Q, T), (b, Q, T) or (b, heads, Q, T), with
        axes of length 1 where it does not vary. None excludes nothing.
    b, Q, T : int
        Sequences, queries and tokens.

    Returns
    -------
    Tensor of bool, shape (b, Q, T)

    Raises
    ------
    ProblemError
        If the mask adds biases to the logits, or differs between heads.
    """
    if mask is None:
        return torch.ones(b, Q, T, dtype=torch.bool)
    allowed = allowed_entries(mask)
    if mask.dtype != torch.bool and bool((mask[allowed] != 0).any()):
        raise ProblemError(
            "model: it adds biases to its attention logits (as ALiBi and T5 do); no key-query matrix W represents them"
        )
    allowed = allowed[..., :T]
    if allowed.ndim == 4:
        if bool((allowed != allowed[:, :1]).any()):
            raise ProblemError("model: expected one attention mask for all heads, got masks that differ between heads")
        allowed = allowed[:, 0]
    return allowed.expand(b, Q, T)
