"""Self-attention of the ``transformers`` package, run with eager attention."""

import inspect as signatures
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import Family, LayerInputs
from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.masks import allowed_tokens
from attsvm.inspect.families.matrices import as_array, projections_of
from attsvm.inspect.weights import Projections


class HuggingFace(Family):
    """Base of the families of the ``transformers`` package.

    A subclass sets ``name`` and ``modules`` and provides :meth:`projections`.
    """

    modules: ClassVar[tuple[str, ...]]
    """Names of the classes of self-attention."""

    rotary: ClassVar[bool] = False
    """Whether the module receives rotary positions as ``position_embeddings``."""

    mask: ClassVar[str] = "attention_mask"
    """Name of the argument that holds the mask."""

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
        mask = self.mask_of(bound) if call is None else call.allowed
        allowed = allowed_tokens(mask, states.shape[0], states.shape[1], states.shape[1])
        rotation = self._rotation(bound, states)
        projected = self.projected(module, states, rotation)
        return LayerInputs(
            states,
            states,
            allowed,
            rotation=rotation if projected is None else None,
            projected=projected,
            bias=self.bias(module, states, bound),
        )

    def mask_of(self, arguments: dict[str, Any]) -> Tensor | None:
        """The mask from the arguments of a call: True, or 0 if it is added to the logits, where a query may attend."""
        return arguments.get(self.mask)

    def projected(
        self, module: Any, states: Tensor, rotation: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor] | None:
        """Keys and queries (b, H, T, d_h), if they are more than rotated projections of the hidden states."""
        return None

    def bias(self, module: Any, states: Tensor, arguments: dict[str, Any]) -> Tensor | None:
        """What is added to the logits for each pair of positions (b, H, Q, T), from the arguments of a call."""
        return None

    def attention(self, module: Any, output: Any, call: FusedCall | None) -> Tensor | None:
        """The last value that the module returns; models without eager attention call a fused one instead."""
        attention: Tensor | None = output[-1]
        return super().attention(module, output, call) if attention is None else attention

    def rebuilt_call(self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> FusedCall | None:
        """Queries and keys from the hidden states, and one mask for the allowed tokens and the bias."""
        inputs, projections = self.inputs(module, arguments, keywords, None), self.projections(module)
        keys, queries = inputs.projected or (
            _projected(inputs.keys, projections.key, projections.key_bias, inputs.rotation),
            _projected(inputs.queries, projections.query, projections.query_bias, inputs.rotation),
        )
        mask = inputs.allowed[:, None].to(keys.device)
        if inputs.bias is not None:
            mask = inputs.bias.masked_fill(~mask, -torch.inf)
        return FusedCall(queries, keys, mask, is_causal=False, scale=projections.scale)

    def _rotation(self, bound: dict[str, Any], states: Tensor) -> tuple[Tensor, Tensor] | None:
        if not self.rotary:
            return None
        positions = bound.get("position_embeddings")
        if positions is None:
            raise ProblemError("model: its attention was called without position_embeddings")
        cosine, sine = (self._of_tokens(part, states, left) for part, left in zip(positions, (1.0, 0.0), strict=True))
        return cosine, sine

    def _of_tokens(self, part: Tensor, states: Tensor, left: float) -> Tensor:
        """Cosines or sines for every sequence; tokens before the first that has a position are not rotated."""
        b, T, size = len(states), states.shape[1], part.shape[-1]
        unrotated = part.new_full((b, T - part.shape[-2], size), left)
        return torch.cat([unrotated, part.expand(b, -1, -1)], dim=1)


def _projected(
    states: Tensor, weights: np.ndarray, biases: np.ndarray, rotation: tuple[Tensor, Tensor] | None
) -> Tensor:
    """Keys or queries (b, H, T, d_h) of hidden states (b, T, d)."""
    heads, offsets = (torch.as_tensor(part).to(states) for part in (weights, biases))
    vectors = states[:, None] @ heads + offsets[:, None]
    return vectors if rotation is None else _turned(vectors, *rotation)


def _turned(vectors: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Vectors (b, H, T, d_h) with their first coordinates rotated by the angles (b, T, ...) of their positions."""
    size = cosine.shape[-1]
    turning, rest = vectors[..., :size], vectors[..., size:]
    first, second = turning.chunk(2, dim=-1)
    turned = turning * cosine[:, None] + torch.cat([-second, first], dim=-1) * sine[:, None]
    return torch.cat([turned, rest], dim=-1)


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


def normed_and_rotated(module: Any, states: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Keys and queries of a module that applies ``k_norm`` and ``q_norm`` to each head before it rotates them."""

    def of(projection: Any, norm: Any) -> Tensor:
        vectors = norm(projection(states).unflatten(-1, (-1, module.head_dim))).transpose(1, 2)
        return _turned(vectors, *rotation)

    keys, queries = of(module.k_proj, module.k_norm), of(module.q_proj, module.q_norm)
    return keys.repeat_interleave(queries.shape[1] // keys.shape[1], 1), queries


def with_gains(projections: Projections, module: Any) -> Projections:
    """Projections with the gains of ``k_norm`` and ``q_norm``, which multiply the coordinates of each head."""

    def gain(norm: Any) -> np.ndarray:
        weight = next(norm.parameters())
        return as_array(norm(torch.ones(module.head_dim, dtype=weight.dtype, device=weight.device)))

    key, query = gain(module.k_norm), gain(module.q_norm)
    return projections._replace(
        key=projections.key * key,
        key_bias=projections.key_bias * key,
        query=projections.query * query,
        query_bias=projections.query_bias * query,
    )
