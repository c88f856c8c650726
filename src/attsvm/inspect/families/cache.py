"""Queries and keys that were kept of a model, such as those of TransformerLens or nnsight, instead of the model."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attsvm._utils.checks import check_positive
from attsvm.errors import ProblemError
from attsvm.inspect.families.base import FAMILIES, Family
from attsvm.inspect.families.call import AttentionCall, joined_masks

HOOKS = re.compile(r"blocks\.(\d+)\.attn\.hook_(rot_)?([qk])")
"""Names of TransformerLens."""


class CachedLayer(nn.Module):
    """The queries and keys of one layer, in place of its attention."""

    def __init__(self, query: Tensor, key: Tensor, scale: float | None) -> None:
        super().__init__()
        self.query, self.key = query, key
        self.scale = query.shape[-1] ** -0.5 if scale is None else scale

    def forward(self, sequences: Tensor, mask: Tensor | None) -> AttentionCall:
        """The call of the attention of some sequences."""
        return AttentionCall(self.query[sequences], self.key[sequences], mask, self.scale)


class Cache(nn.Module):
    """Queries and keys that were kept of a model, to be inspected without it.

    Parameters
    ----------
    entries : mapping
        A cache of TransformerLens: arrays (n, T, heads, d_h) by the names ``blocks.0.attn.hook_q`` and ``hook_k``, or
        ``hook_rot_q`` and ``hook_rot_k`` of models with rotary positions; other entries are ignored. Or by the number
        of the layer, pairs of queries (n, H, T, d_h) and keys (n, G, T, d_h), where G divides H.
    causal : bool
        Whether a query sees no later token.
    lengths : int array, shape (n,), optional
        Number of tokens of each sequence; the others, at the end, are padding.
    mask : array, optional
        More that is excluded: booleans, True where a query may attend, or numbers that are added to the logits; of
        shape (T, T), or (n, 1 or H, T, T).
    scale : float, optional
        Factor of the logits. By default 1/√d_h.
    tokens : int array, shape (n, T), optional
        Tokens of the vocabulary, from which shares of patterns follow.

    Attributes
    ----------
    batch : dict
        Arguments of the cache: its sequences, and its tokens.

    Raises
    ------
    ProblemError
        If there are no queries and keys, or shapes do not fit.

    Notes
    -----
    Selections, concentration, margins over keys and queries, and the smallest changes of queries are known. W, the
    reasons of a selection in the residual stream, and an attention of the model's own to compare with are not.

    See Also
    --------
    attsvm.inspect.inspect

    Examples
    --------
    >>> import numpy as np
    >>> import attsvm.torch
    >>> queries, keys = np.random.default_rng(0).normal(size=(2, 3, 2, 5, 4))  # 3 sequences, 2 heads, 5 tokens
    >>> cache = attsvm.inspect.Cache({0: (queries, keys)}, lengths=[5, 4, 2])
    >>> attsvm.inspect.inspect(cache).selected.shape
    (2, 3, 5)
    """

    def __init__(
        self,
        entries: Mapping[Any, Any],
        *,
        causal: bool = True,
        lengths: Any = None,
        mask: Any = None,
        scale: float | None = None,
        tokens: Any = None,
    ) -> None:
        super().__init__()
        pairs, scale = _pairs(entries), None if scale is None else check_positive("scale", scale)
        for number, (query, key) in pairs.items():
            self.add_module(f"layer_{number}", CachedLayer(query, key, scale))
        first, _ = next(iter(pairs.values()))
        n, T = len(first), first.shape[-2]
        if any((len(query), query.shape[-2]) != (n, T) for query, _ in pairs.values()):
            raise ProblemError("entries: expected the same sequences in every layer, got other shapes")
        self.mask = _mask(n, T, causal, lengths, mask)
        self.batch: dict[str, Tensor] = {"sequences": torch.arange(n)}
        if tokens is not None:
            self.batch["input_ids"] = _tensor("tokens", tokens)
            if self.batch["input_ids"].shape != (n, T):
                raise ProblemError(f"tokens: expected shape {(n, T)}, got {tuple(self.batch['input_ids'].shape)}")

    def forward(self, sequences: Tensor, input_ids: Tensor | None = None) -> None:
        """Call the attention of every layer for some sequences."""
        mask = self.mask
        if mask is not None and mask.ndim == 4:
            mask = mask[sequences]
        for layer in self.children():
            layer(sequences, mask)


class CacheFamily(Family):
    """The layers of a cache."""

    name = "cache of queries and keys"

    def matches(self, name: str, module: nn.Module) -> bool:
        return isinstance(module, CachedLayer)

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        call: AttentionCall = output
        return call


def _pairs(entries: Any) -> dict[int, tuple[Tensor, Tensor]]:
    """Queries and keys (n, heads, T, d_h) of each layer, in order."""
    if not hasattr(entries, "keys"):  # that of TransformerLens is no Mapping
        raise ProblemError(f"entries: expected pairs by the number of the layer, got {type(entries).__name__}")
    entries = dict(entries)
    found = {int(number): pair for number, pair in entries.items() if isinstance(number, int | np.integer)}
    sides: dict[str, dict[int, Tensor]] = {"q": {}, "k": {}}
    # rotated ones last, so that they replace those before the rotation
    for match in sorted(filter(None, (HOOKS.fullmatch(str(name)) for name in entries)), key=lambda one: bool(one[2])):
        part = _tensor(match[0], entries[match[0]])
        sides[match[3]][int(match[1])] = part.transpose(1, 2) if part.ndim == 4 else part
    queries, keys = sides.values()
    if queries.keys() != keys.keys():
        raise ProblemError(f"entries: expected queries and keys of the same layers, got {[*queries]} and {[*keys]}")
    found |= {number: (queries[number], keys[number]) for number in queries}
    if not found:
        raise ProblemError(
            "entries: expected blocks.0.attn.hook_q and hook_k, or pairs of queries and keys by the number of the"
            f" layer, got {', '.join(map(str, list(entries)[:3])) or 'nothing'}"
        )
    return {number: _pair(f"entries[{number}]", found[number]) for number in sorted(found)}


def _pair(name: str, given: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ProblemError(f"{name}: expected a pair of queries and keys, got {type(given).__name__}")
    query, key = (_tensor(name, one) for one in given)
    fits = query.ndim == key.ndim == 4 and 0 not in (*query.shape, *key.shape)
    if not fits or query[:, 0].shape != key[:, 0].shape or query.shape[1] % key.shape[1]:
        raise ProblemError(
            f"{name}: expected queries (n, H, T, d_h) and keys (n, G, T, d_h), where G divides H, got"
            f" {tuple(query.shape)} and {tuple(key.shape)}"
        )
    return query, key


def _mask(n: int, T: int, causal: bool, lengths: Any, mask: Any) -> Tensor | None:
    """One mask of shape (T, T) or (n, heads, T, T) of all that is excluded."""
    found = torch.ones(T, T, dtype=torch.bool).tril() if causal else None
    if lengths is not None:
        lengths = _tensor("lengths", lengths)
        if lengths.shape != (n,) or bool((lengths < 1).any() | (lengths > T).any()):
            raise ProblemError(f"lengths: expected {n} numbers from 1 to {T}, got {lengths.tolist()}")
        there = torch.arange(T) < lengths[:, None]
        found = joined_masks(found, there[:, None, None])
    if mask is not None:
        mask = _tensor("mask", mask)
        if mask.shape != (T, T) and (mask.ndim != 4 or mask.shape[0] != n or mask.shape[2:] != (T, T)):
            raise ProblemError(f"mask: expected shape {(T, T)} or ({n}, heads, {T}, {T}), got {tuple(mask.shape)}")
        found = joined_masks(found, mask)
    return found


def _tensor(name: str, given: Any) -> Tensor:
    try:
        return given.detach().cpu() if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError):
        raise ProblemError(f"{name}: expected an array or a tensor, got {type(given).__name__}") from None


FAMILIES.register(CacheFamily.name, CacheFamily())
