"""An attention module of any other model, described by the names of its layers."""

import re
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.base import Family, LayerInputs
from attsvm.inspect.families.fused import FusedCall
from attsvm.inspect.families.masks import allowed_tokens
from attsvm.inspect.families.matrices import Linear, projections_of
from attsvm.inspect.weights import Projections


@dataclass(frozen=True)
class Layout(Family):
    """Names of the layers of an attention module.

    For modules that take tokens (batch, T, d) as their first argument, project them, and call
    ``torch.nn.functional.scaled_dot_product_attention`` on (batch, heads, T, d_h). Mask and scale are read from that
    call.

    Parameters
    ----------
    modules : str
        Names of the attention modules in the model. ``*`` matches any text without a dot: ``"blocks.*.attn"`` matches
        ``blocks.0.attn``, and ``"layers.*"`` does not match ``layers.0.qkv``.
    heads : int
        Query heads.
    query, key : str, optional
        Names, inside the module, of the ``nn.Linear`` that makes queries and of the one that makes keys.
    fused : str, optional
        Instead of both: the name of the ``nn.Linear`` that makes queries, keys and values, in this order.
    key_heads : int, optional
        Key heads, where several query heads share one.
    rotary : bool
        Use keys and queries as the module passes them to ``scaled_dot_product_attention``. Needed if it changes them
        after the projection, by rotary positions or norms.

    Raises
    ------
    ProblemError
        If neither ``query`` and ``key`` nor ``fused`` is given.

    See Also
    --------
    attsvm.inspect.Family, attsvm.inspect.inspect

    References
    ----------
    Su, Lu, Pan, Murtadha, Wen and Liu (2021), *RoFormer: Enhanced Transformer with Rotary Position Embedding*.

    Examples
    --------
    >>> from attsvm.inspect import Layout
    >>> Layout("blocks.*.attn", heads=8, fused="qkv").name
    'Layout'
    """

    modules: str
    heads: int
    query: str | None = None
    key: str | None = None
    fused: str | None = None
    key_heads: int | None = None
    rotary: bool = False
    name = "Layout"

    def __post_init__(self) -> None:
        if (self.fused is None) == (self.query is None or self.key is None):
            raise ProblemError("layout: expected either query and key, or fused")

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether the name of the module matches ``modules``."""
        return re.fullmatch(re.escape(self.modules).replace(r"\*", r"[^.]*"), name) is not None

    def projections(self, module: Any) -> Projections:
        """Query and key weights of every head; the scale is known from a call only."""
        groups = self.key_heads or self.heads
        parts: list[Linear]
        if self.fused is None:
            query, key = self._linear(module, self.query), self._linear(module, self.key)
            parts = [(query.weight, query.bias), (key.weight, key.bias)]
        else:
            layer = self._linear(module, self.fused)
            size, rest = divmod(len(layer.weight), self.heads + 2 * groups)
            if rest:
                raise ProblemError(
                    f"layout: {self.fused} has {len(layer.weight)} rows, expected a multiple of the"
                    f" {self.heads} query heads and twice {groups} key heads"
                )
            rows = slice(0, self.heads * size), slice(self.heads * size, (self.heads + groups) * size)
            parts = [(layer.weight[at], None if layer.bias is None else layer.bias[at]) for at in rows]
        return projections_of(parts[0], parts[1], heads=self.heads, key_heads=groups, scale=1.0)

    def inputs(
        self, module: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], call: FusedCall | None
    ) -> LayerInputs:
        """The first argument, and the mask that was passed to ``scaled_dot_product_attention``."""
        if call is None:
            raise ProblemError(f"layout: {self.modules} does not call scaled_dot_product_attention")
        states = arguments[0] if arguments else next(iter(keywords.values()))
        if not (isinstance(states, Tensor) and states.ndim == 3):
            raise ProblemError(f"layout: expected a tensor (batch, T, d) as the first argument of {self.modules}")
        query, key = call.query, call.key
        allowed = allowed_tokens(call.effective_mask, len(states), query.shape[-2], key.shape[-2])
        projected = (key.repeat_interleave(self.heads // key.shape[1], 1), query) if self.rotary else None
        return LayerInputs(states, states, allowed, projected=projected, scale=call.scale)

    def _linear(self, module: nn.Module, name: str | None) -> nn.Linear:
        try:
            found = module.get_submodule(name or "")
        except AttributeError:
            found = None
        if not isinstance(found, nn.Linear):
            raise ProblemError(f"layout: {self.modules} has no nn.Linear named {name!r}")
        return found
