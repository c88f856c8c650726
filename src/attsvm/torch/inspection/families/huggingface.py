"""Self-attention of the ``transformers`` package, run with eager attention."""

import inspect as signatures
from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.torch.inspection.families.base import Family, LayerInputs
from attsvm.torch.inspection.families.fused import FusedCall
from attsvm.torch.inspection.families.masks import allowed_tokens
from attsvm.torch.inspection.families.matrices import projections_of
from attsvm.torch.inspection.weights import Projections


class HuggingFace(Family):
    """Base of the families of the ``transformers`` package.

    A subclass sets ``name`` and ``modules`` and provides :meth:`projections`.
    """

    modules: ClassVar[tuple[str, ...]]
    """Names of the classes of self-attention."""

    rotary: ClassVar[bool] = False
    """Whether the module receives rotary positions as ``position_embeddings``."""

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether its class is one of ``modules``; cross-attention is left out."""
        return type(module).__name__ in self.modules and not getattr(module, "is_cross_attention", False)

    @abstractmethod
    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head, and the scale of the logits."""

    def inputs(
        self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], call: FusedCall | None
    ) -> LayerInputs:
        """Hidden states after the norm of the block, the mask, and the rotation."""
        bound = signatures.signature(module.forward).bind(*arguments, **keywords).arguments
        bound = {**bound.pop("kwargs", {}), **bound}
        states = bound["hidden_states"]
        allowed = allowed_tokens(bound.get("attention_mask"), states.shape[0], states.shape[1], states.shape[1])
        return LayerInputs(states, states, allowed, rotation=self._rotation(bound, len(states)))

    def attention(self, module: Any, output: Any, call: FusedCall | None) -> Tensor | None:
        """The second value that the module returns; eager attention is always returned."""
        attention: Tensor | None = output[1]
        return attention

    def _rotation(self, bound: dict[str, Any], b: int) -> tuple[Tensor, Tensor] | None:
        if not self.rotary:
            return None
        positions = bound.get("position_embeddings")
        if positions is None:
            raise ProblemError("model: its attention was called without position_embeddings")
        cosine, sine = (part.expand(b, *part.shape[1:]) for part in positions)
        return cosine, sine


def separate_projections(module: Any) -> Projections:
    """The projections of a module with layers ``q_proj`` and ``k_proj``, a ``head_dim`` and a ``scaling``."""
    query, key = module.q_proj, module.k_proj
    return projections_of(
        (query.weight, query.bias),
        (key.weight, key.bias),
        heads=len(query.weight) // module.head_dim,
        key_heads=len(key.weight) // module.head_dim,
        scale=module.scaling,
    )
