"""Measures of all heads in one call of scaled_dot_product_attention, computed where the tensors are."""

import numpy as np
import torch
from torch import Tensor

from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.masks import allowed_entries
from attsvm.inspect.weights import Projections, effective_rank, triangular_product

MOST_SEQUENCES, MOST_QUERIES = 8, 64
"""Of a call; they are spread evenly."""

OF_CALLS = ("largest_logit", "largest_probability", "entropy", "first_share")
OF_WEIGHTS = ("spectral_norm", "frobenius_norm", "effective_rank")


def of_call(call: FusedCall) -> Tensor:
    """The measures :data:`OF_CALLS` of each head, shape (measures, H).

    The largest logit is the largest one over all sampled queries; the others are means over them. Padding is no query.
    """
    sequences, places = (
        _spread(size, most) for size, most in ((len(call.query), MOST_SEQUENCES), (call.query.shape[-2], MOST_QUERIES))
    )
    query = call.query[sequences][:, :, places]
    key = call.key[sequences].repeat_interleave(call.query.shape[1] // call.key.shape[1], 1)
    logits = ((query @ key.mT) * call.scale).float()
    mask = call.effective_mask
    if mask is not None:
        mask = mask.expand(*call.query.shape[:3], call.key.shape[-2])[sequences][:, :, places]
        biases = 0.0 if mask.dtype == torch.bool else mask.float()
        queries = _are_queries(call)[sequences][:, :, places, None]
        logits = (logits + biases).masked_fill(~(allowed_entries(mask) & queries), -torch.inf)
    logs = logits.log_softmax(-1)
    asked = logs.isfinite().any(dim=-1)
    probabilities = logs.exp().nan_to_num()
    entropy = -(probabilities * logs.masked_fill(probabilities == 0, 0.0)).sum(dim=-1)
    first = probabilities[..., 0]
    count = asked.sum(dim=(0, 2)).clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        return values.masked_fill(~asked, 0.0).sum(dim=(0, 2)) / count

    return torch.stack([logits.amax(dim=(0, 2, 3)), mean(probabilities.amax(dim=-1)), mean(entropy), mean(first)])


def _are_queries(call: FusedCall) -> Tensor:
    """Which places of a call are queries, shape (b, H, Q). In self-attention a token that no query sees is padding."""
    b, H, Q = call.query.shape[:3]
    mask = call.effective_mask
    if mask is None or call.key.shape[-2] != Q:
        return torch.ones(b, H, Q, dtype=torch.bool, device=call.query.device)
    return allowed_entries(mask).any(dim=-2).expand(b, H, Q)


def of_weights(projections: Projections) -> np.ndarray:
    """The measures :data:`OF_WEIGHTS` of W = W_K W_Q'/√d_h of each head without biases, shape (measures, H)."""
    product = triangular_product(projections.key, projections.query)
    values = projections.scale * np.linalg.svd(product, compute_uv=False)
    return np.stack([values.max(axis=-1), np.sqrt((values**2).sum(axis=-1)), effective_rank(values)])


def _spread(size: int, most: int) -> Tensor:
    """At most so many indices below ``size``, spread evenly."""
    return torch.linspace(0, size - 1, min(size, most)).round().long()
