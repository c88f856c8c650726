"""Models of the ``transformers`` package whose attention calls an attention function of the package."""

import inspect as signatures
from typing import ClassVar

from torch import nn

from attsvm.inspect.families.base import FAMILIES, Family
from attsvm.inspect.families.stream import Adds, AddsHeads, Norms, Step, find_module


class Transformers(Family):
    """Self-attention and cross-attention of the ``transformers`` package.

    A subclass may name the classes of its attention modules in ``modules``.
    """

    name = "transformers"
    general = True

    modules: ClassVar[tuple[str, ...]] = ()

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether its class is one of ``modules``; without them, whether it asks for an attention function."""
        if self.modules:
            return type(module).__name__ in self.modules
        forward = signatures.unwrap(type(module).forward)
        return "ALL_ATTENTION_FUNCTIONS" in getattr(getattr(forward, "__code__", None), "co_names", ())


class Bert(Transformers):
    """BERT, whose sums are normalised."""

    name = "BERT"
    modules = ("BertSelfAttention",)
    parts: ClassVar[tuple[str, str]] = ("BertEmbeddings", "BertEncoder")

    def stream(self, model: nn.Module) -> list[Step]:
        """Embeddings and layers."""
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
    """RoBERTa, which has the layers of BERT."""

    name = "RoBERTa"
    modules = ("RobertaSelfAttention",)
    parts = ("RobertaEmbeddings", "RobertaEncoder")


class Gpt2(Transformers):
    """GPT-2, whose blocks read the stream through a norm."""

    name = "GPT-2"
    modules = ("GPT2Attention",)

    def stream(self, model: nn.Module) -> list[Step]:
        """Embedding, positions and blocks."""
        base = find_module(model, "GPT2Model")
        steps: list[Step] = [Adds("embedding", base.wte), Adds("position", base.wpe)]
        for block in base.h:
            steps.append(AddsHeads(block.attn, block.attn.c_proj, block.attn.num_heads, block.ln_1))
            steps.append(Adds("MLP {layer}", block.mlp))
        return steps


class GptNeoX(Transformers):
    """GPT-NeoX and Pythia, with attention and MLP side by side or in turn."""

    name = "GPT-NeoX"
    modules = ("GPTNeoXAttention",)

    def stream(self, model: nn.Module) -> list[Step]:
        """Embedding and blocks."""
        base = find_module(model, "GPTNeoXModel")
        steps: list[Step] = [Adds("embedding", base.embed_in)]
        for block in base.layers:
            attention = block.attention
            heads = len(attention.query_key_value.weight) // (3 * attention.head_size)
            steps.append(AddsHeads(attention, attention.dense, heads, block.input_layernorm))
            steps.append(Adds("MLP {layer}", block.mlp))
        return steps


for family in (Bert(), Gpt2(), GptNeoX(), Roberta(), Transformers()):
    FAMILIES.register(family.name, family)
