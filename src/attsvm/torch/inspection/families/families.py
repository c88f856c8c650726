"""How attention modules of known families are read: one small adapter each, found by the name of the module's class."""

import fnmatch
import inspect as signatures
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from attsvm.errors import ProblemError
from attsvm.torch.inspection.weights import Projections

LOWEST = -1e4
"""An additive mask this low forbids; one between it and 0 adds to the logits."""


@dataclass
class Call:
    """What one call of an attention module took, batch first.

    Attributes
    ----------
    keys, queries : Tensor, shapes (b, T, d) and (b, Q, d_q)
        Tokens from which keys and queries are made.
    is_self : bool
        Whether they are the same.
    allowed : Tensor of bools, shape (b, Q, T)
        What may be attended to.
    rotation : (Tensor, Tensor) or None
        Cosines and sines (b, T, d_h).
    given : (Tensor, Tensor) or None
        Keys and queries (b, H, T, d_h) that the module computed, where those are wanted.
    """

    keys: torch.Tensor
    queries: torch.Tensor
    is_self: bool
    allowed: torch.Tensor
    rotation: tuple[torch.Tensor, torch.Tensor] | None = None
    given: tuple[torch.Tensor, torch.Tensor] | None = None


class Family(Protocol):
    """An adapter; ``seen`` is what the module gave scaled_dot_product_attention, if it called that."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def first_is_special(self) -> bool:
        """Whether the first token is a class token that no tokenizer names."""
        ...

    def matches(self, name: str, module: nn.Module) -> bool:
        """Whether a module, by its name in the model, is an attention layer of this family."""
        ...

    def projections(self, module: nn.Module) -> Projections:
        """Its weights."""
        ...

    def prepared(self, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        """Arguments with which the module returns its attention."""
        ...

    def call(self, module: nn.Module, arguments: tuple, keywords: dict, seen: Any) -> Call:
        """What went into it."""
        ...

    def own(self, module: nn.Module, output: Any, seen: Any) -> torch.Tensor | None:
        """The model's own attention (b, H, Q, T); None where it did not give any."""
        ...


@dataclass(frozen=True)
class HuggingFace:
    """A self-attention module of the ``transformers`` package, run with eager attention.

    Parameters
    ----------
    name : str
        Of the family.
    modules : tuple of str
        Classes of its self-attention.
    read : callable
        Module to projections.
    rotary : bool
    first_is_special : bool
        The first token is a class token that no tokenizer names.
    """

    name: str
    modules: tuple[str, ...]
    read: Callable[[Any], Projections]
    rotary: bool = False
    first_is_special: bool = False

    def matches(self, name: str, module: nn.Module) -> bool:
        """By class; cross-attention is left out."""
        return type(module).__name__ in self.modules and not getattr(module, "is_cross_attention", False)

    def projections(self, module: nn.Module) -> Projections:
        """Its weights."""
        return self.read(module)

    def prepared(self, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        """As they are: eager attention is always returned."""
        return arguments, keywords

    def call(self, module: nn.Module, arguments: tuple, keywords: dict, seen: Any) -> Call:
        """Hidden states after the block's norm, mask, and the rotation."""
        bound = signatures.signature(module.forward).bind(*arguments, **keywords).arguments
        bound = {**bound.pop("kwargs", {}), **bound}
        states = bound["hidden_states"]
        allowed = as_allowed(bound.get("attention_mask"), states.shape[0], states.shape[1], states.shape[1])
        rotation = None
        if self.rotary:
            cosine, sine = (
                part.expand(states.shape[0], *part.shape[1:]) for part in keywords_or(bound, "position_embeddings")
            )
            rotation = (cosine, sine)
        return Call(states, states, True, allowed, rotation)

    def own(self, module: nn.Module, output: Any, seen: Any) -> torch.Tensor | None:
        """The second thing that it returns."""
        return output[1]


class MultiheadAttention:
    """``torch.nn.MultiheadAttention``, also in ``nn.TransformerEncoderLayer``."""

    name = "nn.MultiheadAttention"
    first_is_special = False

    def matches(self, name: str, module: nn.Module) -> bool:
        """By class."""
        return isinstance(module, nn.MultiheadAttention)

    def projections(self, module: Any) -> Projections:
        """Its weights, of one matrix or of three."""
        if module.bias_k is not None or module.add_zero_attn:
            raise ProblemError("model: nn.MultiheadAttention with add_bias_kv or add_zero_attn; plain tokens wanted")
        heads, size = module.num_heads, module.embed_dim
        if module.in_proj_weight is not None:
            query, key = module.in_proj_weight[:size], module.in_proj_weight[size : 2 * size]
        else:
            query, key = module.q_proj_weight, module.k_proj_weight
        bias = module.in_proj_bias
        biases = (None, None) if bias is None else (bias[:size], bias[size : 2 * size])
        return of_matrices(query, biases[0], key, biases[1], heads, heads, module.head_dim**-0.5)

    def prepared(self, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        """Asks for the attention of every head."""
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask", "average_attn_weights")
        named = dict(zip(names, arguments, strict=False))
        return (), {**named, **keywords, "need_weights": True, "average_attn_weights": False}

    def call(self, module: Any, arguments: tuple, keywords: dict, seen: Any) -> Call:
        """Tokens of queries and of keys, batch first, and the two masks."""
        query, key = (self._batch_first(module, keywords[name]) for name in ("query", "key"))
        b, Q, T = len(query), query.shape[1], key.shape[1]
        mask = keywords.get("attn_mask")
        if mask is not None:
            if mask.ndim == 3:
                mask = mask.reshape(b, -1, Q, T)
            mask = ~mask if mask.dtype == torch.bool else mask
        allowed = as_allowed(mask, b, Q, T)
        padding = keywords.get("key_padding_mask")
        if padding is not None:
            padding = padding if padding.dtype == torch.bool else padding < LOWEST
            allowed = allowed & ~padding.reshape(b, 1, T)
        return Call(key, query, keywords["query"] is keywords["key"], allowed)

    def own(self, module: Any, output: Any, seen: Any) -> torch.Tensor | None:
        """The second thing that it returns; with a batch axis."""
        attention = output[1]
        return attention[None] if attention.ndim == 3 else attention

    @staticmethod
    def _batch_first(module: Any, states: torch.Tensor) -> torch.Tensor:
        if states.ndim == 2:
            return states[None]
        return states if module.batch_first else states.transpose(0, 1)


@dataclass(frozen=True)
class Layout:
    """Where a model's own attention modules keep what is needed.

    For modules that take tokens (batch, T, d) as their first argument, project them, and call
    ``torch.nn.functional.scaled_dot_product_attention`` on (batch, heads, T, d_h); mask and scale are read off that
    call.

    Parameters
    ----------
    modules : str
        Names of the attention modules in the model, with ``*`` for any part: ``"blocks.*.attn"``.
    heads : int
        Query heads.
    query, key : str, optional
        Names, inside the module, of the ``nn.Linear`` that makes queries, and of the one that makes keys.
    fused : str, optional
        Instead of both: the ``nn.Linear`` that makes queries, keys and values, in this order.
    key_heads : int, optional
        Key heads, where several query heads share one.
    rotary : bool
        Take keys and queries as the module passes them on, with whatever it did to them: rotary positions, norms.

    References
    ----------
    Su, Lu, Pan, Murtadha, Wen and Liu (2021), *RoFormer: Enhanced Transformer with Rotary Position Embedding*.
    """

    modules: str
    heads: int
    query: str | None = None
    key: str | None = None
    fused: str | None = None
    key_heads: int | None = None
    rotary: bool = False
    name = "declared layout"
    first_is_special = False

    def __post_init__(self) -> None:
        if (self.fused is None) == (self.query is None or self.key is None):
            raise ProblemError("layout: give either query and key, or fused")

    def matches(self, name: str, module: nn.Module) -> bool:
        """By name."""
        return fnmatch.fnmatchcase(name, self.modules)

    def projections(self, module: nn.Module) -> Projections:
        """Its weights."""
        groups = self.key_heads or self.heads
        if self.fused is None:
            query, key = self._linear(module, self.query), self._linear(module, self.key)
            return of_matrices(query.weight, query.bias, key.weight, key.bias, self.heads, groups, 1.0)
        fused = self._linear(module, self.fused)
        parts, rest = divmod(len(fused.weight), self.heads + 2 * groups)
        if rest:
            raise ProblemError(f"layout: {self.fused} has {len(fused.weight)} rows, not a multiple of the heads")
        at, to = self.heads * parts, (self.heads + groups) * parts
        biases = (None, None) if fused.bias is None else (fused.bias[:at], fused.bias[at:to])
        return of_matrices(fused.weight[:at], biases[0], fused.weight[at:to], biases[1], self.heads, groups, 1.0)

    def prepared(self, arguments: tuple, keywords: dict) -> tuple[tuple, dict]:
        """As they are."""
        return arguments, keywords

    def call(self, module: nn.Module, arguments: tuple, keywords: dict, seen: Any) -> Call:
        """The first argument; the mask that ``scaled_dot_product_attention`` was given."""
        states = arguments[0] if arguments else next(iter(keywords.values()))
        if not (isinstance(states, torch.Tensor) and states.ndim == 3):
            raise ProblemError(f"layout: {self.modules} takes no tensor (batch, T, d) as its first argument")
        query, key, mask, is_causal, _ = seen
        Q, T = query.shape[-2], key.shape[-2]
        if is_causal:
            mask = torch.ones(Q, T, dtype=torch.bool, device=query.device).tril()
        allowed = as_allowed(mask, len(states), Q, T)
        given = (key.repeat_interleave(self.heads // key.shape[1], 1), query) if self.rotary else None
        return Call(states, states, True, allowed, given=given)

    def own(self, module: nn.Module, output: Any, seen: Any) -> torch.Tensor | None:
        """From queries and keys as they were passed on."""
        query, key, mask, is_causal, scale = seen
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        logits = (query @ key.mT) * scale
        allowed = None
        if is_causal:
            allowed = torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril()
        elif mask is not None:
            allowed = mask if mask.dtype == torch.bool else mask > LOWEST
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        return logits.softmax(-1)

    def _linear(self, module: nn.Module, name: str | None) -> Any:
        try:
            found = module.get_submodule(name or "")
        except AttributeError:
            found = None
        if not isinstance(found, nn.Linear):
            raise ProblemError(f"layout: {self.modules} has no nn.Linear called {name!r}")
        return found


def of_matrices(
    query: torch.Tensor,
    query_bias: torch.Tensor | None,
    key: torch.Tensor,
    key_bias: torch.Tensor | None,
    heads: int,
    key_heads: int,
    scale: float,
) -> Projections:
    """Projections from the weights of linear layers, (heads · d_h, d)."""
    if len(query) % heads or len(key) % key_heads or heads % key_heads:
        raise ProblemError(
            f"model: projections of {len(query)} and {len(key)} rows do not fit {heads} heads and {key_heads} key heads"
        )

    def split(matrix: torch.Tensor, bias: torch.Tensor | None, count: int) -> tuple[np.ndarray, np.ndarray]:
        array = as_array(matrix)
        offsets = np.zeros(len(array)) if bias is None else as_array(bias)
        parts = array.reshape(count, -1, array.shape[1]).transpose(0, 2, 1)
        repeats = heads // count
        return np.repeat(parts, repeats, axis=0), np.repeat(offsets.reshape(count, -1), repeats, axis=0)

    return Projections(*split(query, query_bias, heads), *split(key, key_bias, key_heads), scale)


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """In float64, on the host."""
    return tensor.detach().to(device="cpu", dtype=torch.float64).numpy()


def as_allowed(mask: torch.Tensor | None, b: int, Q: int, T: int) -> torch.Tensor:
    """A mask, additive or of booleans, as what may be attended to, (b, Q, T).

    Raises
    ------
    ProblemError
        If it adds to the logits what is neither 0 nor forbidding, or differs between heads.
    """
    if mask is None:
        return torch.ones(b, Q, T, dtype=torch.bool)
    if mask.dtype == torch.bool:
        allowed = mask
    else:
        allowed = mask > LOWEST
        if bool((mask[allowed] != 0).any()):
            raise ProblemError("model: adds biases to its attention logits (as ALiBi or T5 do), which no W can hold")
    allowed = allowed[..., :T]
    if allowed.ndim == 4:
        if bool((allowed != allowed[:, :1]).any()):
            raise ProblemError("model: its attention mask differs between heads")
        allowed = allowed[:, 0]
    return allowed.expand(b, Q, T)


def keywords_or(bound: dict, name: str) -> Any:
    """An argument that must be there."""
    if bound.get(name) is None:
        raise ProblemError(f"model: its attention was called without {name}")
    return bound[name]


def _bert(module: Any) -> Projections:
    heads = module.num_attention_heads
    query, key = module.query, module.key
    return of_matrices(query.weight, query.bias, key.weight, key.bias, heads, heads, module.scaling)


def _gpt2(module: Any) -> Projections:
    # its Conv1D holds the transpose of what nn.Linear holds
    weight, bias, size = module.c_attn.weight.T, module.c_attn.bias, module.embed_dim
    query, key = slice(0, size), slice(size, 2 * size)
    heads = module.num_heads
    return of_matrices(weight[query], bias[query], weight[key], bias[key], heads, heads, module.scaling)


def _projected(module: Any) -> Projections:
    query, key = module.q_proj, module.k_proj
    heads, key_heads = len(query.weight) // module.head_dim, len(key.weight) // module.head_dim
    return of_matrices(query.weight, query.bias, key.weight, key.bias, heads, key_heads, module.scaling)


FAMILIES: tuple[Family, ...] = (
    HuggingFace("BERT", ("BertSelfAttention",), _bert),
    HuggingFace("RoBERTa", ("RobertaSelfAttention",), _bert),
    HuggingFace("GPT-2", ("GPT2Attention",), _gpt2),
    HuggingFace("Llama", ("LlamaAttention",), _projected, rotary=True),
    HuggingFace("ViT", ("ViTAttention",), _projected, first_is_special=True),
    MultiheadAttention(),
)
