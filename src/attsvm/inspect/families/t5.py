"""The encoder of T5."""

from typing import Any

from torch import Tensor, nn

from attsvm.inspect.families.huggingface import HuggingFace
from attsvm.inspect.families.matrices import projections_of
from attsvm.inspect.families.registry import FAMILIES
from attsvm.inspect.weights import Projections


class T5(HuggingFace):
    """Self-attention of the encoder of T5, which adds a bias to the logits for each distance of two positions."""

    name = "T5"
    modules = ("T5Attention",)
    mask = "mask"

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether it is attention of the encoder."""
        return super().matches(name, module) and not getattr(module, "is_decoder", False)

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head."""
        return projections_of(
            (module.q.weight, None), (module.k.weight, None), heads=module.n_heads, scale=module.scaling
        )

    def bias(self, module: Any, states: Tensor, arguments: dict[str, Any]) -> Tensor | None:
        """The bias that the first layer computes and passes on to the others."""
        given = arguments.get("position_bias")
        T = states.shape[1]
        bias: Tensor = module.compute_bias(T, T, device=states.device) if given is None else given
        return bias.expand(len(states), -1, -1, -1)


FAMILIES.register(T5.name, T5())
