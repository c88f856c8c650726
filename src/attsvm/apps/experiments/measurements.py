"""What the papers look at in a trained transformer: sizes and sparsity of its weights and of its attention."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.apps.experiments.models import PADDING, Attention, Classifier

KINDS = ("key", "query", "value")
EDGES = np.logspace(-8, 1, 55)
"""Of the histogram bins of |weights|; smaller weights count into the first bin, larger into the last."""

NEGLIGIBLE = 1e-4
"""Weights below this count as none."""


def evenness(values: Tensor, count: Tensor | int) -> Tensor:
    """‖a‖₁²/(T‖a‖₂²) along the last axis: 1 where all T entries are equal in size, 1/T where one has everything.

    Parameters
    ----------
    values : Tensor, shape (..., T)
    count : int or Tensor, shape (...)
        T, less where the rest is padding.
    """
    values = values.double()
    squares = values.square().sum(-1)
    # a row of zeros has no shape; weights that are all zero are as even as can be
    return torch.where(squares > 0, values.abs().sum(-1).square() / (count * squares.clamp(min=1e-300)), 1.0)


def weight_measures(model: Classifier) -> dict[str, dict[str, float]]:
    """Of keys, queries and values, over all layers: evenness, and the share of negligible weights."""
    found = {}
    for kind in KINDS:
        weights = _weights(model, kind)
        found[kind] = {
            "evenness": float(evenness(weights, len(weights))),
            "negligible": float((weights.abs() < NEGLIGIBLE).double().mean()),
            "largest": float(weights.abs().max()),
        }
    return found


def weight_histograms(model: Classifier) -> dict[str, list[float]]:
    """Of keys, queries and values: the share of |weights| in each bin of :data:`EDGES`."""
    found = {}
    for kind in KINDS:
        sizes = _weights(model, kind).abs().double().cpu().numpy().clip(EDGES[0], EDGES[-1])
        counts, _ = np.histogram(sizes, EDGES)
        found[kind] = (counts / len(sizes)).tolist()
    return found


def key_query_norms(model: Classifier) -> list[float]:
    """‖W_K W_Q'‖ in the Frobenius norm, the mean over heads, of every layer."""
    return [_key_query_norm(attention) for attention in model.attentions()]


def attention_evenness(model: Classifier, inputs: Tensor) -> dict[str, list[float]]:
    """‖a‖₁²/(T‖a‖₂²) of every layer, the mean over heads and inputs; small where attention is sparse.

    Parameters
    ----------
    model : Classifier
    inputs : Tensor
        As the model takes them; a batch that fits into memory with its maps.

    Returns
    -------
    dict
        "all": over all queries that are no padding; "class": of the class token's query.
    """
    maps = model.attention_maps(inputs)
    of_all, of_class = [], []
    for attention in maps:
        if inputs.ndim == 2:
            real = inputs != PADDING
            lengths = real.sum(-1)[:, None, None]
        else:
            real = torch.ones(len(inputs), attention.shape[-1], dtype=torch.bool, device=inputs.device)
            lengths = torch.full((len(inputs), 1, 1), attention.shape[-1], device=inputs.device)
        even = evenness(attention, lengths).mean(1)
        of_all.append(float(even[real].mean()))
        of_class.append(float(even[:, 0].mean()))
    return {"all": of_all, "class": of_class}


def measure(model: Classifier, inputs: Tensor) -> dict[str, Any]:
    """All that is recorded after every epoch, on some test inputs."""
    return {
        "weights": weight_measures(model),
        "attention_evenness": attention_evenness(model, inputs),
        "key_query_norm": key_query_norms(model),
    }


def _weights(model: Classifier, kind: str) -> Tensor:
    return torch.cat([getattr(attention, kind).weight.detach().flatten() for attention in model.attentions()])


def _key_query_norm(attention: Attention) -> float:
    keys, queries = (
        layer.weight.detach().double().unflatten(0, (attention.heads, -1)) for layer in (attention.key, attention.query)
    )
    # ‖K'Q‖² = ⟨KK', QQ'⟩, and the Gram matrices are the small ones
    products = (keys @ keys.mT) * (queries @ queries.mT)
    return float(products.sum((-2, -1)).clamp(min=0).sqrt().mean())
