"""Calls of attention functions: what one is computed from, and those that a running model makes."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attsvm._utils.extensions import import_object
from attsvm.errors import ProblemError

LOWEST = -1e4
"""An additive mask excludes a token where it is at most this; other values than 0 add to the logits."""


MARK = "_attsvm_trace"
"""Attribute of a tensor that depends on the tokens of the attention module that runs, and how."""


class AttentionCall(NamedTuple):
    """What one call of an attention function computes its attention from.

    Attributes
    ----------
    query : Tensor, shape (b, H, Q, d_h)
    key : Tensor, shape (b, G, T, d_h)
        G divides H: several query heads can share one key head.
    mask : Tensor or None
        Of booleans (True where a query may attend) or additive, with biases of positions if there are any; the last
        axes are (Q, T). None excludes nothing.
    scale : float
        Factor of the logits.
    softcap : float, optional
        c, where the logits s become c tanh(s/c) before the mask is added, as in Gemma 2.
    sink : Tensor, shape (H,), optional
        A logit of each head that takes a part of the attention and belongs to no token, as in gpt-oss.
    own : Tensor, shape (b, H, Q, T), optional
        The attention as the model returned it; None of a function with a sink, which may leave out its share.
    mixed : (Tensor, Tensor), optional
        The values (b, G, T, d_v) and what the attention function makes of them, shape (b, H, Q, d_v). A fused function
        with dropout is called once more without it, one that is known for the first sequence alone.
    dropout : float, optional
        That of ``own`` and ``mixed``; None if it is not known.
    biases_of_tokens : bool
        Whether biases in the mask depend on the tokens, and not on their positions only, as in DeBERTa.
    """

    query: Tensor
    key: Tensor
    mask: Tensor | None
    scale: float
    softcap: float | None = None
    sink: Tensor | None = None
    own: Tensor | None = None
    mixed: tuple[Tensor, Tensor] | None = None
    dropout: float | None = None
    biases_of_tokens: bool = False

    @property
    def is_compared(self) -> bool:
        """Whether there is something of the model to compare the attention with."""
        if self.own is not None or self.mixed is None:
            return self.own is not None
        values, outputs = self.mixed
        fits = outputs.shape[1:] == (*self.query.shape[1:3], values.shape[-1])
        return fits and outputs.shape[1] % values.shape[1] == 0

    def part(self, sequences: Tensor, queries: Tensor) -> "AttentionCall":
        """The call at some sequences and some queries."""
        mask = self.mask
        if mask is not None:
            mask = mask.expand(*self.query.shape[:3], self.key.shape[-2])[sequences][:, :, queries]
        query = self.query[sequences][:, :, queries]
        own = None if self.own is None or self.own.ndim != 4 else self.own[sequences][:, :, queries]
        mixed = None
        if self.mixed is not None and own is None and self.dropout == 0 and self.is_compared:
            there = sequences[: len(self.mixed[0])]  # the first sequence is always in a part
            mixed = self.mixed[0][there], self.mixed[1][there][:, :, queries]
        return self._replace(query=query, key=self.key[sequences], mask=mask, own=own, mixed=mixed)

    def logits(self) -> Tensor:
        """The logits, shape (b, H, Q, T); −inf where the mask excludes a token."""
        key = self.key.repeat_interleave(self.query.shape[1] // self.key.shape[1], 1)
        logits = (self.query @ key.mT) * self.scale
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        if self.mask is None:
            return logits
        biases = 0.0 if self.mask.dtype == torch.bool else self.mask
        return (logits + biases).masked_fill(~allowed_entries(self.mask), -torch.inf)

    def token_share(self, logits: Tensor) -> Tensor | float:
        """The share of attention that the tokens have together, shape (b, H, Q, 1); the sink has the rest."""
        if self.sink is None:
            return 1.0
        # Σ exp(s_t) / (Σ exp(s_t) + exp(sink))
        return (logits.logsumexp(-1, keepdim=True) - self.sink[:, None, None]).sigmoid()


def allowed_entries(mask: Tensor) -> Tensor:
    """Where a mask, additive or of booleans, lets a query attend."""
    return mask if mask.dtype == torch.bool else mask > LOWEST


def joined_masks(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """One mask that excludes what either of two masks excludes, and adds the biases of both elsewhere."""
    if one is None or other is None:
        return other if one is None else one
    if one.dtype == other.dtype == torch.bool:
        return one & other
    if one.dtype == torch.bool:
        return other.masked_fill(~one, -torch.inf)
    return one.masked_fill(~other, -torch.inf) if other.dtype == torch.bool else one + other


def allowed_tokens(mask: Tensor | None, b: int, Q: int, T: int) -> Tensor:
    """The tokens (b, Q, T) that each query may attend to.

    ``mask``: shape (Q, T), or (b, heads, Q, T) with axes of length 1 where it does not vary.

    Raises ProblemError if it differs between heads.
    """
    if mask is None:
        return torch.ones(b, Q, T, dtype=torch.bool)
    allowed = allowed_entries(mask)
    if allowed.ndim == 4:
        if bool((allowed != allowed[:, :1]).any()):
            raise ProblemError("model: expected one attention mask for all attention heads, got different masks")
        allowed = allowed[:, 0]
    return allowed.expand(b, Q, T)


def biases_of(mask: Tensor | None, b: int, heads: int, Q: int, T: int) -> Tensor | None:
    """What a mask adds to the logits (b, heads, Q, T), as T5 and ALiBi do; None for nothing."""
    if mask is None or mask.dtype == torch.bool:
        return None
    biases = mask.masked_fill(~allowed_entries(mask), 0.0)
    return biases.expand(b, heads, Q, T) if bool(biases.any()) else None


def as_array(tensor: Tensor) -> np.ndarray:
    """A tensor as a float64 NumPy array."""
    array: np.ndarray = tensor.detach().to(device="cpu", dtype=torch.float64).numpy()
    return array


SDPA_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Of ``scaled_dot_product_attention``, in order."""

UNREAD = ("cu_seq_lens_q", "indices", "block_indices")
"""Options of attention functions that exclude tokens without a mask."""


def _repeated(function: Any, arguments: tuple[Any, ...], options: dict[str, Any], *, first: bool) -> Any:
    """A call that several monitors of a model do not take for one of the model.

    ``arguments``: each tensor has the sequences first; of ``options`` those with four axes, and ``position_ids``.
    ``first``: of the first sequence alone.
    """
    b = next(len(one) for one in arguments if isinstance(one, Tensor))

    def part(one: Any) -> Any:
        return one[:1] if first and isinstance(one, Tensor) and len(one) == b else one

    of_sequences = (name for name, one in options.items() if name == "position_ids" or getattr(one, "ndim", 0) == 4)
    AttentionCalls.repeats = True
    try:
        with torch.no_grad():
            return function(*map(part, arguments), **options | {name: part(options[name]) for name in of_sequences})
    finally:
        AttentionCalls.repeats = False


class AttentionCalls(TorchFunctionMode):
    """Keeps every call of ``scaled_dot_product_attention``; ``calls`` may be emptied at any time."""

    repeats: ClassVar[bool] = False  # whether a call is made once more for a comparison, and not by the model

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[AttentionCall | Exception] = []  # an error where one cannot be read
        self.trace: Any = None  # of the attention module that runs; it calls the other functions

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention and not AttentionCalls.repeats:
            given = {**dict(zip(SDPA_ARGUMENTS, args, strict=False)), **kwargs}
            query, key, mask = given["query"], given["key"], given.get("attn_mask")
            if given.get("is_causal", False):
                mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
            scale, output = given.get("scale") or query.shape[-1] ** -0.5, func(*args, **kwargs)
            undropped = output
            if given.get("dropout_p", 0):  # what is compared has no dropout, and draws no number
                options = {**given, "dropout_p": 0.0}
                sides = tuple(options.pop(name) for name in SDPA_ARGUMENTS[:3])
                undropped = _repeated(func, sides, options, first=query.ndim == 4)
            mixed = given["value"][: len(undropped)], undropped
            depends = hasattr(mask, MARK)
            self.calls.append(
                AttentionCall(query, key, mask, scale, mixed=mixed, dropout=0.0, biases_of_tokens=depends)
            )
            return output
        return func(*args, **kwargs) if self.trace is None else self.trace(func, args, kwargs)

    def take(self, name: str) -> AttentionCall | None:
        """The call since the last one that was taken, of the module of this name; None if there is none.

        Raises ProblemError if there are several, and the error of one that cannot be read.
        """
        found = self.calls[:]
        self.calls.clear()
        if len(found) > 1:
            way_out = "several, as of attention in blocks, are not read (BigBird: attention_type='original_full')"
            raise ProblemError(f"model: expected one call of attention in {name}, got {len(found)}; {way_out}")
        one = found[0] if found else None
        if isinstance(one, Exception):
            raise one
        return one

    @contextlib.contextmanager
    def with_interface(self) -> Iterator[None]:
        """Keep the calls of the attention functions of ``transformers``, too.

        An attention module of that package asks for the function of its implementation, whose default is the eager
        function of its model. Every function computes as it does otherwise; one that calls
        ``scaled_dot_product_attention`` counts once.
        """
        if "transformers.modeling_utils" not in sys.modules:  # there is no such model
            yield
            return
        interfaces: Any = import_object("transformers:AttentionInterface")
        ask = interfaces.get_interface

        def get_interface(interface: Any, implementation: Any, default: Any) -> Callable[..., Any]:
            function = ask(interface, implementation, default)

            def call(
                module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **options: Any
            ) -> Any:
                if AttentionCalls.repeats:
                    return function(module, query, key, value, attention_mask, **options)
                before = len(self.calls)
                output = function(module, query, key, value, attention_mask, **options)
                try:
                    read = read_call(module, query, key, attention_mask, options, eager=function is default)
                    # the attention that a function with a sink returns may leave out its share
                    own = output[1] if read.sink is None else None
                    undropped, dropout = output[0], float(options.get("dropout", 0.0))
                    if dropout and own is None:  # as a fused kernel, whose output cannot be compared
                        known = getattr(function, "__module__", "").startswith("transformers.integrations.")
                        arguments, again = (module, query, key, value, attention_mask), options | {"dropout": 0.0}
                        undropped, dropout = _repeated(function, arguments, again, first=known)[0], 0.0
                    mixed = value[: len(undropped)], undropped.transpose(1, 2)
                    self.calls[before:] = [read._replace(own=own, mixed=mixed, dropout=dropout)]
                except Exception as error:  # the model goes on
                    self.calls[before:] = [error]
                return output

            return call

        interfaces.get_interface = get_interface
        try:
            yield
        finally:
            interfaces.get_interface = ask


def read_call(
    module: nn.Module, query: Tensor, key: Tensor, mask: Any, options: dict[str, Any], *, eager: bool
) -> AttentionCall:
    """The call of an attention function of ``transformers``.

    ``mask``: of padding, shape (b, T), where 0 is padding; or of all pairs, shape (b, 1 or H, Q, T), which leaves
    nothing to the options. ``eager``: whether the mask is all that excludes tokens.

    Raises ProblemError if the mask or an option cannot be read.
    """
    scaling = options.get("scaling")
    for name in UNREAD:
        if options.get(name) is not None:
            raise ProblemError(
                f"model: {type(module).__name__} calls its attention with {name}, which is not supported"
            )
    if mask is not None and not (isinstance(mask, Tensor) and mask.ndim in (2, 4)):
        raise ProblemError(
            f"model: {type(module).__name__}: expected a mask of shape (b, T) or (b, heads, Q, T), got "
            f"{tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__}"
        )
    if not eager and (mask is None or mask.ndim == 2):
        mask = _mask_of_options(module, query, key, mask, options)
    return AttentionCall(
        query,
        key,
        joined_masks(mask, options.get("position_bias")),
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        softcap=options.get("softcap"),
        sink=options.get("s_aux"),
        biases_of_tokens=hasattr(options.get("position_bias"), MARK),
    )


def _mask_of_options(
    module: nn.Module, query: Tensor, key: Tensor, padding: Tensor | None, options: dict[str, Any]
) -> Tensor:
    """The mask of all pairs of a function that receives at most that of the padding, such as FlashAttention."""
    b, Q, T = len(query), query.shape[-2], key.shape[-2]
    causal, window = options.get("is_causal"), options.get("sliding_window")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    # the last query is at the last token
    ahead = torch.arange(T, device=query.device) - torch.arange(T - Q, T, device=query.device)[:, None]
    allowed = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
    if window is not None:
        allowed = allowed & (ahead.abs() < window)
    allowed = allowed.expand(b, 1, Q, T)
    if padding is not None:
        allowed = allowed & padding[:, None, None, -T:].bool()
    places = options.get("position_ids")
    if b == 1 and padding is None and places is not None and Q == T == places.numel():
        # each of several packed sequences begins at the first position, also if it has one token
        sequence = (places == places.min()).cumsum(-1).reshape(T)
        allowed = allowed & (sequence == sequence[:, None])
    return allowed
