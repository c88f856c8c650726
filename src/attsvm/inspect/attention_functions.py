"""The attention functions of ``transformers`` that do not call scaled_dot_product_attention, such as FlashAttention.

An attention module hands its queries and keys to the function that is registered under the name of its implementation.
Masks are arguments of that function: the padding, whether it is causal, the length of a sliding window.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attsvm.errors import ProblemError
from attsvm.inspect.families.fused import FusedCall

READ_OTHERWISE = {"eager", "sdpa"}
"""Implementations that need no other function than those of the module and of PyTorch."""


@contextlib.contextmanager
def attention_functions(model: nn.Module, keep: Callable[[FusedCall], object]) -> Iterator[None]:
    """Call ``keep`` with what the modules of a model pass to registered attention functions.

    The functions compute as they do without it, and are registered again afterwards.
    """
    configs = (getattr(module, "config", None) for module in model.modules())
    found = {getattr(config, "_attn_implementation", None) for config in configs}
    names = {name for name in found if isinstance(name, str)} - READ_OTHERWISE
    if not names:
        yield
        return
    from transformers import AttentionInterface
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    replaced = {name: ALL_ATTENTION_FUNCTIONS[name] for name in names if name in ALL_ATTENTION_FUNCTIONS}
    for name, function in replaced.items():
        AttentionInterface.register(name, _kept(function, keep))
    try:
        yield
    finally:
        for name, function in replaced.items():
            AttentionInterface.register(name, function)


def _kept(function: Callable[..., Any], keep: Callable[[FusedCall], object]) -> Callable[..., Any]:
    def call(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **options: Any
    ) -> Any:
        keep(fused_call(module, query, key, attention_mask, options))
        return function(module, query, key, value, attention_mask, **options)

    return call


def fused_call(module: nn.Module, query: Tensor, key: Tensor, mask: Any, options: dict[str, Any]) -> FusedCall:
    """The call of scaled_dot_product_attention that does what an attention function does.

    ``module``: its ``is_causal`` counts if the options have none. ``query``: shape (b, H, Q, d_h). ``key``: shape (b,
    G, T, d_h). ``mask``: of padding, shape (b, T), where 0 is padding; or of all pairs, shape (b, 1 or H, Q, T), which
    leaves nothing to the options. ``options``: among them ``is_causal``, ``sliding_window``, ``scaling``, and
    ``position_ids`` of packed sequences.

    Raises ProblemError if the mask or an option cannot be read.
    """
    scaling, window = options.get("scaling"), options.get("sliding_window")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    for name in ("softcap", "cu_seq_lens_q", "position_bias"):
        if options.get(name) is not None:
            raise ProblemError(
                f"model: {type(module).__name__} calls its attention with {name}, which is not supported"
            )
    if mask is not None and not (isinstance(mask, Tensor) and mask.ndim in (2, 4)):
        raise ProblemError(
            f"model: {type(module).__name__}: expected a mask of shape (b, T) or (b, heads, Q, T), got "
            f"{tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__}"
        )
    if mask is not None and mask.ndim == 4:
        return FusedCall(query, key, mask, is_causal=False, scale=scale)
    b, Q, T = len(query), query.shape[-2], key.shape[-2]
    causal = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    # the last query is at the last token
    ahead = torch.arange(T, device=query.device) - torch.arange(T - Q, T, device=query.device)[:, None]
    allowed = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    if window is not None:
        allowed = allowed & (ahead.abs() < window)
    allowed = allowed.expand(b, 1, Q, T)
    if mask is not None:
        allowed = allowed & mask[:, None, None, -T:].bool()
    places = options.get("position_ids")
    if b == 1 and places is not None and Q == T == places.shape[-1]:
        # positions begin anew with each of several packed sequences
        sequence = (places.diff(dim=-1, prepend=places[..., :1]) < 0).cumsum(-1).reshape(T)
        allowed = allowed & (sequence == sequence[:, None])
    return FusedCall(query, key, allowed, is_causal=False, scale=scale)
