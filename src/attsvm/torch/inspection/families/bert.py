"""BERT."""

from typing import Any

from attsvm.torch.inspection.families.huggingface import HuggingFace
from attsvm.torch.inspection.families.matrices import projections_of
from attsvm.torch.inspection.families.registry import FAMILIES
from attsvm.torch.inspection.weights import Projections


class Bert(HuggingFace):
    """Self-attention of BERT: separate layers ``query`` and ``key``."""

    name = "BERT"
    modules = ("BertSelfAttention",)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        query, key = module.query, module.key
        return projections_of(
            (query.weight, query.bias),
            (key.weight, key.bias),
            heads=module.num_attention_heads,
            scale=module.scaling,
        )


FAMILIES.register(Bert.name, Bert())
