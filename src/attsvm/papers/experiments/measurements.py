"""Measures of a trained transformer: sizes and sparsity of its weights and of its attention."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from attsvm.papers.experiments.blocks import SelfAttention
from attsvm.papers.experiments.models import Classifier

KINDS = ("key", "query", "value")
EDGES = np.logspace(-8, 1, 55)
"""Edges of the histogram bins of |weights|. Smaller weights are counted in the first bin, larger ones in the last."""

NEGLIGIBLE = 1e-4
"""Weights below this are counted as negligible."""


def evenness(values: Tensor, count: Tensor | int) -> Tensor:
    """‖a‖₁²/(T‖a‖₂²) along the last axis: 1 if all T entries are equal in size, 1/T if only one is not zero.

    ``values``: shape (..., T). ``count``: shape (...), T, without padding.
    """
    values = values.double()
    squares = values.square().sum(-1)
    # a row of zeros is counted as even
    return torch.where(squares > 0, values.abs().sum(-1).square() / (count * squares.clamp(min=1e-300)), 1.0)


def weight_measures(model: Classifier) -> dict[str, dict[str, float]]:
    """Evenness, share of negligible weights and largest weight of keys, queries and values, over all layers."""
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
    """Share of |weights| in each bin of :data:`EDGES`, for keys, queries and values."""
    found = {}
    for kind in KINDS:
        sizes = _weights(model, kind).abs().double().cpu().numpy().clip(EDGES[0], EDGES[-1])
        counts, _ = np.histogram(sizes, EDGES)
        found[kind] = (counts / len(sizes)).tolist()
    return found


def key_query_norms(model: Classifier) -> list[float]:
    """Frobenius norm of W_K W_Q', averaged over heads, for every layer."""
    return [_key_query_norm(attention) for attention in model.attentions()]


def attention_evenness(model: Classifier, inputs: Tensor) -> dict[str, list[float]]:
    """‖a‖₁²/(T‖a‖₂²) for every layer, averaged over heads and inputs; small if attention is sparse.

    ``inputs``: a batch for the model that fits into memory together with its attention maps.

    Returns "all": over all queries that are no padding; "class": for the query of the class token.
    """
    maps = model.attention_maps(inputs)
    present = model.present(inputs)
    of_all, of_class = [], []
    for attention in maps:
        even = evenness(attention, present.sum(-1)[:, None, None]).mean(1)
        of_all.append(float(even[present].mean()))
        of_class.append(float(even[:, 0].mean()))
    return {"all": of_all, "class": of_class}


def measure(model: Classifier, inputs: Tensor) -> dict[str, Any]:
    """What is recorded after every epoch, on some test inputs."""
    return {
        "weights": weight_measures(model),
        "attention_evenness": attention_evenness(model, inputs),
        "key_query_norm": key_query_norms(model),
    }


def _weights(model: Classifier, kind: str) -> Tensor:
    return torch.cat([getattr(attention, kind).weight.detach().flatten() for attention in model.attentions()])


def _key_query_norm(attention: SelfAttention) -> float:
    keys, queries = (
        torch.unflatten(layer.weight.detach().double(), 0, (attention.heads, -1))
        for layer in (attention.key, attention.query)
    )
    # ‖K'Q‖² = ⟨KK', QQ'⟩, and the Gram matrices are the small ones
    products = (keys @ keys.mT) * (queries @ queries.mT)
    return float(products.sum((-2, -1)).clamp(min=0).sqrt().mean())
