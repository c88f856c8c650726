"""A call of ``torch.nn.functional.scaled_dot_product_attention``, as an attention module made it."""

from typing import NamedTuple

import torch
from torch import Tensor

from attsvm.inspect.families.masks import allowed_entries


class FusedCall(NamedTuple):
    """Arguments of one call of ``scaled_dot_product_attention``.

    Attributes
    ----------
    query : Tensor, shape (b, H, Q, d_h)
    key : Tensor, shape (b, G, T, d_h)
        G divides H: several query heads can share one key head.
    mask : Tensor or None
        Additive, or of booleans.
    is_causal : bool
    scale : float
        Factor of the logits.
    """

    query: Tensor
    key: Tensor
    mask: Tensor | None
    is_causal: bool
    scale: float

    @property
    def effective_mask(self) -> Tensor | None:
        """The mask, or the causal one."""
        if not self.is_causal:
            return self.mask
        return torch.ones(self.query.shape[-2], self.key.shape[-2], dtype=torch.bool, device=self.query.device).tril()

    @property
    def allowed(self) -> Tensor | None:
        """Where the mask lets a query attend; None for everywhere."""
        mask = self.effective_mask
        return None if mask is None else allowed_entries(mask)

    def attention(self) -> Tensor:
        """The attention probabilities, shape (b, H, Q, T)."""
        key = self.key.repeat_interleave(self.query.shape[1] // self.key.shape[1], 1)
        logits = (self.query @ key.mT) * self.scale
        mask = self.effective_mask
        if mask is not None:
            biases = 0.0 if mask.dtype == torch.bool else mask  # as T5 passes its biases of positions
            logits = (logits + biases).masked_fill(~allowed_entries(mask), -torch.inf)
        return logits.softmax(-1)
