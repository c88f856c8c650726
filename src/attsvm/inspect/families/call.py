"""One call of an attention function: queries, keys, mask, and what else its logits depend on."""

from typing import NamedTuple

import torch
from torch import Tensor

from attsvm.inspect.families.masks import allowed_entries


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
