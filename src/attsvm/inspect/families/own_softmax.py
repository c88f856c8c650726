"""Attention modules that compute one softmax of queries and keys themselves."""

import inspect as signatures
from typing import Any

from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import FAMILIES, Family
from attsvm.inspect.families.call import AttentionCall
from attsvm.inspect.families.transformers import Transformers

FUNCTIONS = {"softmax", "Softmax", "multi_head_attention_forward", "scaled_dot_product_attention"}
"""Names in the code of a module that computes its softmax itself."""

CALLS_A_FUNCTION = Transformers()
"""Matches modules that call an attention function of ``transformers``."""


class OwnSoftmax(Family):
    """Modules that are called attention and whose code has a softmax, of ``transformers`` and others.

    The softmax may be that of ``scaled_dot_product_attention``, whose call is read as it is.
    """

    name = "softmax"
    general = traced = True

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether its class is called attention, and one of its methods calls one of :data:`FUNCTIONS`."""
        kind = type(module)
        if "attention" not in kind.__name__.lower() or CALLS_A_FUNCTION.matches(name, module):
            return False
        return any(
            FUNCTIONS & {*getattr(getattr(signatures.unwrap(method), "__code__", None), "co_names", ())}
            for base in kind.__mro__
            if issubclass(base, nn.Module) and base is not nn.Module
            for method in vars(base).values()
            if callable(method)
        )

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        """The logits that were followed to their softmax."""
        if seen is None:
            raise ProblemError(
                f"model: {type(module).__name__} does not weight its values by a softmax of scaled products of queries"
                " and keys plus biases"
            )
        if seen.query.ndim == 3:
            b = len(self.tokens(module, arguments)[0])
            parts: dict[str, Any] = {
                part: value.reshape(b, -1, *value.shape[1:])
                for part, value in seen._asdict().items()
                if isinstance(value, Tensor) and value.ndim == 3
            }
            seen = seen._replace(**parts)
        return seen

    def tokens(self, module: Any, arguments: dict[str, Any]) -> list[Tensor]:
        """The arguments (b, T, d), and feature maps (b, height, width, d)."""
        tensors = (one for one in arguments.values() if isinstance(one, Tensor) and one.is_floating_point())
        return [one.flatten(1, -2) for one in tensors if one.ndim in (3, 4)]


FAMILIES.register(OwnSoftmax.name, OwnSoftmax())
