"""RoBERTa."""

from typing import Any

from attsvm.inspect.families.bert import Bert
from attsvm.inspect.families.registry import FAMILIES


class Roberta(Bert):
    """Self-attention of RoBERTa, which has the layers of BERT."""

    name = "RoBERTa"
    modules = ("RobertaSelfAttention",)
    parts = ("RobertaEmbeddings", "RobertaEncoder")

    def longest(self, config: Any) -> int | None:
        """The length of the table of positions, less the positions that precede the first token."""
        table = super().longest(config)
        # RoBERTa counts its positions from behind that of the padding
        return None if table is None else table - (config.pad_token_id + 1)


FAMILIES.register(Roberta.name, Roberta())
