"""BERT and RoBERTa."""

from typing import ClassVar

from torch import nn

from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.families.stream import Adds, AddsHeads, Norms, Step, find_module
from attsvm.inspect.families.transformers import Transformers


class Bert(Transformers):
    """Self-attention of BERT."""

    name = "BERT"
    modules = ("BertSelfAttention",)
    parts: ClassVar[tuple[str, str]] = ("BertEmbeddings", "BertEncoder")

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


class Roberta(Bert):
    """Self-attention of RoBERTa, which has the layers of BERT."""

    name = "RoBERTa"
    modules = ("RobertaSelfAttention",)
    parts = ("RobertaEmbeddings", "RobertaEncoder")


for family in (Bert(), Roberta()):
    FAMILIES.register(family.name, family)
