"""One call of an attention function: queries, keys, mask, and what else its logits depend on."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attsvm.errors import ProblemError

LOWEST = -1e4
"""An additive mask excludes a token where it is at most this; other values than 0 add to the logits."""


class AttentionCall(NamedTuple):
    """What one call of an attention function computes its attention from.

    Attributes
    ----------
    query : Tensor, shape (b, H, Q, d_h)
    key : Tensor, shape (b, G, T, d_h)
        G divides H: several query heads can share one key head.
    mask : Tensor or None
        Of booleans (True where a query may attend) or additive, with biases of positions if there are any; the last
        axes are (Q, T). None excludes nothing.
    scale : float
        Factor of the logits.
    softcap : float, optional
        c, where the logits s become c tanh(s/c) before the mask is added, as in Gemma 2.
    sink : Tensor, shape (H,), optional
        A logit of each head that takes a part of the attention and belongs to no token, as in gpt-oss.
    own : Tensor, shape (b, H, Q, T), optional
        The attention as the model returned it.
    """

    query: Tensor
    key: Tensor
    mask: Tensor | None
    scale: float
    softcap: float | None = None
    sink: Tensor | None = None
    own: Tensor | None = None

    @property
    def allowed(self) -> Tensor | None:
        """Where the mask lets a query attend; None for everywhere."""
        return None if self.mask is None else allowed_entries(self.mask)

    def part(self, sequences: Tensor, queries: Tensor) -> "AttentionCall":
        """The call at some sequences and some queries."""
        mask = self.mask
        if mask is not None:
            mask = mask.expand(*self.query.shape[:3], self.key.shape[-2])[sequences][:, :, queries]
        query = self.query[sequences][:, :, queries]
        return self._replace(query=query, key=self.key[sequences], mask=mask, own=None)

    def logits(self) -> Tensor:
        """The logits, shape (b, H, Q, T); −inf where the mask excludes a token."""
        key = self.key.repeat_interleave(self.query.shape[1] // self.key.shape[1], 1)
        logits = (self.query @ key.mT) * self.scale
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        if self.mask is None:
            return logits
        biases = 0.0 if self.mask.dtype == torch.bool else self.mask
        return (logits + biases).masked_fill(~allowed_entries(self.mask), -torch.inf)

    def token_share(self, logits: Tensor) -> Tensor | float:
        """The share of attention that the tokens have together, shape (b, H, Q, 1); the sink has the rest."""
        if self.sink is None:
            return 1.0
        # Σ exp(s_t) / (Σ exp(s_t) + exp(sink))
        return (logits.logsumexp(-1, keepdim=True) - self.sink[:, None, None]).sigmoid()

    def attention(self) -> Tensor:
        """The attention probabilities, shape (b, H, Q, T); those of the model if it returned them."""
        if self.own is not None:
            return self.own
        logits = self.logits()
        return logits.softmax(-1) * self.token_share(logits)


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


def as_array(tensor: Tensor) -> np.ndarray:
    """A tensor as a float64 NumPy array."""
    array: np.ndarray = tensor.detach().to(device="cpu", dtype=torch.float64).numpy()
    return array
