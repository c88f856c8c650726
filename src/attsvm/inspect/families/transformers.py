"""Models of the ``transformers`` package whose attention calls an attention function of the package."""

import inspect as signatures
from typing import ClassVar

from torch import nn

from attsvm.inspect.families.base import FAMILIES, Family


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


class Roberta(Bert):
    """RoBERTa, which has the layers of BERT."""

    name = "RoBERTa"
    modules = ("RobertaSelfAttention",)


class Gpt2(Transformers):
    """GPT-2, whose blocks read the stream through a norm."""

    name = "GPT-2"
    modules = ("GPT2Attention",)


class GptNeoX(Transformers):
    """GPT-NeoX and Pythia, with attention and MLP side by side or in turn."""

    name = "GPT-NeoX"
    modules = ("GPTNeoXAttention",)


for family in (Bert(), Gpt2(), GptNeoX(), Roberta(), Transformers()):
    FAMILIES.register(family.name, family)
