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

HOOKS = re.compile(r"blocks\.(\d+)\.attn\.hook_(rot_)?(q|k|pattern)")
"""Names of TransformerLens."""


class CachedLayer(nn.Module):
    """The queries and keys of one layer, in place of its attention."""

    def __init__(self, kept: AttentionCall) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, sequences: Tensor) -> AttentionCall:
        """The call of the attention of some sequences."""
        query, key, mask, own = self.kept.query, self.kept.key, self.kept.mask, self.kept.own
        return self.kept._replace(
            query=query[sequences],
            key=key[sequences],
            mask=mask[sequences] if mask is not None and mask.ndim == 4 else mask,
            own=None if own is None else own[sequences],
        )


class Cache(nn.Module):
    """Queries and keys recorded from a model, to be inspected without the model.

    Parameters
    ----------
    entries : mapping
        A cache of TransformerLens: arrays (n, T, heads, d_h) by the names ``blocks.0.attn.hook_q`` and ``hook_k``, or
        ``hook_rot_q`` and ``hook_rot_k`` of models with rotary positions, and the attention of the model, (n, H, T, T),
        by ``hook_pattern``; other entries are ignored. Or by the number of the layer, queries (n, H, T, d_h) and keys
        (n, G, T, d_h), where G divides H, and, if it was kept, the attention.
    causal : bool
        Whether a query sees no later token.
    lengths : int array, shape (n,), optional
        Number of tokens of each sequence; the others, at the end, are padding.
    mask : array, optional
        More that is excluded: booleans, True where a query may attend, or numbers that are added to the logits, as by
        ALiBi; of shape (T, T), or (1 or n, 1 or H, T, T).
    scale : float, optional
        Factor of the logits. By default 1/√d_h.
    softcap : float, optional
        c, where the logits s become c tanh(s/c) before the mask is added, as in Gemma 2.
    sink : array, shape (H,), optional
        A logit of each head that takes a part of the attention and belongs to no token, as in gpt-oss.
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
    ``mask``, ``scale``, ``softcap`` and ``sink`` are those of every layer, or mappings by the number of the layer, such
    as for windows in every second one. What the cache does not hold has to be given: the model's own attention, if it
    was kept, is compared with that of queries and keys, and a difference is refused. Without it nothing is compared.

    Selections, concentration, margins over keys and queries, and the smallest changes of queries are known. W and the
    reasons of a selection in the residual stream are not.

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
        scale: float | Mapping[int, float] | None = None,
        softcap: float | Mapping[int, float] | None = None,
        sink: Any = None,
        tokens: Any = None,
    ) -> None:
        super().__init__()
        calls = _calls(entries)
        first = next(iter(calls.values())).query
        n, T = len(first), first.shape[-2]
        if any((len(call.query), call.query.shape[-2]) != (n, T) for call in calls.values()):
            raise ProblemError("entries: expected the same sequences in every layer, got other shapes")
        excluded = _excluded(n, T, causal, lengths)
        of_layers = {"mask": mask, "scale": scale, "softcap": softcap, "sink": sink}
        for name, given in of_layers.items():
            unknown = [number for number in given if number not in calls] if isinstance(given, Mapping) else []
            if unknown:
                raise ProblemError(f"{name}: expected numbers of layers, {[*calls]}, got {unknown}")
        for number, call in calls.items():
            own = {
                name: given.get(number) if isinstance(given, Mapping) else given for name, given in of_layers.items()
            }
            for name in ("scale", "softcap"):
                own[name] = None if own[name] is None else check_positive(name, own[name])
            layer = call._replace(
                mask=excluded if own["mask"] is None else joined_masks(excluded, _mask(call, own["mask"])),
                scale=own["scale"] or call.scale,
                softcap=own["softcap"],
                sink=None if own["sink"] is None else _sink(call, own["sink"]),
            )
            self.add_module(f"layer_{number}", CachedLayer(layer))
        self.batch: dict[str, Tensor] = {"sequences": torch.arange(n)}
        if tokens is not None:
            self.batch["input_ids"] = _tensor("tokens", tokens)
            if self.batch["input_ids"].shape != (n, T):
                raise ProblemError(f"tokens: expected shape {(n, T)}, got {tuple(self.batch['input_ids'].shape)}")

    def forward(self, sequences: Tensor, input_ids: Tensor | None = None) -> None:
        """Call the attention of every layer for some sequences."""
        for layer in self.children():
            layer(sequences)


class CacheFamily(Family):
    """The layers of a cache."""

    name = "cache of queries and keys"
    unread = "give what it depends on: causal, lengths, mask, scale, softcap or sink"

    def matches(self, name: str, module: nn.Module) -> bool:
        return isinstance(module, CachedLayer)

    def call(self, module: Any, arguments: dict[str, Any], output: Any, seen: AttentionCall | None) -> AttentionCall:
        call: AttentionCall = output
        return call


def _calls(entries: Any) -> dict[int, AttentionCall]:
    """Queries and keys (n, heads, T, d_h) of each layer, in order, and its attention if it was kept."""
    if not hasattr(entries, "keys"):  # that of TransformerLens is no Mapping
        raise ProblemError(f"entries: expected pairs by the number of the layer, got {type(entries).__name__}")
    entries = dict(entries)
    found = {int(number): pair for number, pair in entries.items() if isinstance(number, int | np.integer)}
    sides: dict[str, dict[int, Tensor]] = {"q": {}, "k": {}, "pattern": {}}
    # rotated ones last, so that they replace those before the rotation
    for match in sorted(filter(None, (HOOKS.fullmatch(str(name)) for name in entries)), key=lambda one: bool(one[2])):
        part = _tensor(match[0], entries[match[0]])
        swapped = part.ndim == 4 and match[3] != "pattern"
        sides[match[3]][int(match[1])] = part.transpose(1, 2) if swapped else part
    queries, keys, patterns = sides.values()
    if queries.keys() != keys.keys():
        raise ProblemError(f"entries: expected queries and keys of the same layers, got {[*queries]} and {[*keys]}")
    found |= {number: (queries[number], keys[number], patterns.get(number)) for number in queries}
    if not found:
        raise ProblemError(
            "entries: expected blocks.0.attn.hook_q and hook_k, or pairs of queries and keys by the number of the"
            f" layer, got {', '.join(map(str, list(entries)[:3])) or 'nothing'}"
        )
    return {number: _call(f"entries[{number}]", found[number]) for number in sorted(found)}


def _call(name: str, given: Any) -> AttentionCall:
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise ProblemError(f"{name}: expected a pair of queries and keys, got {type(given).__name__}")
    query, key = (_tensor(name, one) for one in given[:2])
    own = _tensor(name, given[2]) if len(given) == 3 and given[2] is not None else None
    fits = query.ndim == key.ndim == 4 and 0 not in (*query.shape, *key.shape)
    if not fits or query[:, 0].shape != key[:, 0].shape or query.shape[1] % key.shape[1]:
        raise ProblemError(
            f"{name}: expected queries (n, H, T, d_h) and keys (n, G, T, d_h), where G divides H, got"
            f" {tuple(query.shape)} and {tuple(key.shape)}"
        )
    if own is not None and own.shape != (*query.shape[:3], query.shape[2]):
        raise ProblemError(
            f"{name}: expected attention of shape {(*query.shape[:3], query.shape[2])}, got {tuple(own.shape)}"
        )
    return AttentionCall(query, key, None, query.shape[-1] ** -0.5, own=own)


def _excluded(n: int, T: int, causal: bool, lengths: Any) -> Tensor | None:
    """The mask of later tokens and of padding, of shape (T, T) or (n, 1, T, T)."""
    found = torch.ones(T, T, dtype=torch.bool).tril() if causal else None
    if lengths is None:
        return found
    lengths = _tensor("lengths", lengths)
    if lengths.shape != (n,) or bool((lengths < 1).any() | (lengths > T).any()):
        raise ProblemError(f"lengths: expected {n} numbers from 1 to {T}, got {lengths.tolist()}")
    return joined_masks(found, (torch.arange(T) < lengths[:, None])[:, None, None].expand(n, 1, T, T))


def _mask(call: AttentionCall, given: Any) -> Tensor:
    mask, (n, H, T, _) = _tensor("mask", given), call.query.shape
    if bool(mask.isnan().any()):
        raise ProblemError("mask: expected booleans or numbers, got NaN")
    if mask.shape == (T, T):
        return mask
    if mask.ndim != 4 or mask.shape[0] not in (1, n) or mask.shape[1] not in (1, H) or mask.shape[2:] != (T, T):
        raise ProblemError(f"mask: expected shape {(T, T)} or ({n}, heads, {T}, {T}), got {tuple(mask.shape)}")
    return mask.expand(n, -1, T, T)


def _sink(call: AttentionCall, given: Any) -> Tensor:
    sink = _tensor("sink", given)
    if sink.shape != (call.query.shape[1],) or not bool(sink.isfinite().all()):
        raise ProblemError(f"sink: expected {call.query.shape[1]} finite numbers, one for each head, got {given!r:.60}")
    return sink


def _tensor(name: str, given: Any) -> Tensor:
    try:
        return given.detach().cpu() if isinstance(given, Tensor) else torch.as_tensor(np.asarray(given))
    except (TypeError, ValueError):
        raise ProblemError(f"{name}: expected an array or a tensor, got {type(given).__name__}") from None


FAMILIES.register(CacheFamily.name, CacheFamily())
