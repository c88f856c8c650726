"""DistilBERT."""

from typing import Any

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class DistilBert(HuggingFace):
    """Self-attention of DistilBERT: separate layers ``q_lin`` and ``k_lin``."""

    name = "DistilBERT"
    modules = ("DistilBertSelfAttention",)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        query, key = module.q_lin, module.k_lin
        return projections_of(
            (query.weight, query.bias), (key.weight, key.bias), heads=module.n_heads, scale=module.scaling
        )


FAMILIES.register(DistilBert.name, DistilBert())
