"""FSMT, the translation models of fairseq, with the sequence as the first axis."""

from typing import Any

from torch import Tensor, nn

from attsvm.inspect.families.base import FAMILIES
from attsvm.inspect.families.own_softmax import OwnSoftmax


class Fsmt(OwnSoftmax):
    """Self-attention and cross-attention of FSMT."""

    name = "FSMT"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether it is the ``Attention`` of FSMT."""
        return type(module).__name__ == "Attention" and type(module).__module__.endswith("modeling_fsmt")

    def tokens(self, module: Any, arguments: dict[str, Any]) -> list[Tensor]:
        """The tokens of the queries and those of the keys, batch first."""
        given = [arguments["query"], arguments["key"] if module.encoder_decoder_attention else arguments["query"]]
        return [one.transpose(0, 1) for one in {id(one): one for one in given}.values()]


FAMILIES.register(Fsmt.name, Fsmt())
