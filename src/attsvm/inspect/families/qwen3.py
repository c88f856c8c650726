"""Qwen3."""

from typing import Any

from torch import Tensor

from attsvm.inspect.families.huggingface import normed_and_rotated, with_gains
from attsvm.inspect.families.llama import Llama
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class Qwen3(Llama):
    """Self-attention of Qwen3: that of Llama, with a norm of the keys and of the queries of each head."""

    name = "Qwen3"
    modules = ("Qwen3Attention",)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head, with the gains of the norms but not their scale at each token."""
        return with_gains(super().projections(module), module)

    def projected(
        self, module: Any, states: Tensor, rotation: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor] | None:
        """Keys and queries after their norms and the rotation."""
        return None if rotation is None else normed_and_rotated(module, states, rotation)


FAMILIES.register(Qwen3.name, Qwen3())
