"""BERT."""

from typing import Any, ClassVar

from torch import nn

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Norms, Step, find_module
from attsvm.inspect.weights import Projections


class Bert(HuggingFace):
    """Self-attention of BERT: separate layers ``query`` and ``key``."""

    name = "BERT"
    modules = ("BertSelfAttention",)
    parts: ClassVar[tuple[str, str]] = ("BertEmbeddings", "BertEncoder")

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        query, key = module.query, module.key
        return projections_of(
            (query.weight, query.bias),
            (key.weight, key.bias),
            heads=module.num_attention_heads,
            scale=module.scaling,
        )

    def stream(self, model: nn.Module) -> list[Step]:
        """Embeddings and layers; each sum is normalised."""
        embeddings, encoder = (find_module(model, name) for name in self.parts)
        steps: list[Step] = [
            Adds("embedding", embeddings.word_embeddings),
            Adds("token type", embeddings.token_type_embeddings),
            Adds("position", embeddings.position_embeddings),
            Norms(embeddings.LayerNorm),
        ]
        for layer in encoder.layer:
            attention, output = layer.attention.self, layer.attention.output
            steps += [AddsHeads(attention, output.dense, attention.num_attention_heads), Norms(output.LayerNorm)]
            steps += [Adds("MLP {layer}", layer.output.dense), Norms(layer.output.LayerNorm)]
        return steps


FAMILIES.register(Bert.name, Bert())
