"""Follow the logits of a module from the product of its queries and keys to the softmax that weights its values."""

import contextlib
import inspect as signatures
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attsvm.errors import ProblemError
from attsvm.inspect.families.call import LOWEST, MARK, AttentionCall, joined_masks

TOKENS = "of tokens"
"""Mark of what depends on the tokens in some other way than :class:`Logits` and :class:`Probabilities`."""

CHOSEN = "chosen by tokens"
"""Mark of what is picked from such a tensor by places that depend on the tokens: its rows are at places not known."""

PICKS = {"__getitem__", "gather", "index_select", "take_along_dim"}
SAME = {"float", "double", "half", "bfloat16", "to", "type", "type_as", "contiguous", "clone", "detach"}
RESHAPED = {"view", "reshape", "unflatten", "flatten", "squeeze", "unsqueeze", "view_as", "reshape_as"}
SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__", "__isub__", "sub_"}
FACTORS = {"mul", "__mul__", "__rmul__", "__imul__", "mul_"}
DIVISORS = {"div", "__truediv__", "__itruediv__", "div_"}
FLOORS = {"max", "maximum", "clamp", "clamp_min"}


@dataclass(frozen=True)
class Logits:
    """Logits scale · qk' + added: the leading axes are those of ``shape``, of heads and sequences."""

    query: Tensor  # (..., Q, d_h)
    key: Tensor  # (..., T, d_h)
    shape: torch.Size  # (..., Q, T)
    scale: float = 1.0
    added: Tensor | None = None  # as the mask of an AttentionCall
    depends: bool = False  # whether a term of ``added`` depends on the tokens

    def reshaped(self, shape: torch.Size) -> "Logits | None":
        """The same with other leading axes; None if the last two axes change."""
        if shape[-2:] != self.shape[-2:]:
            return None
        before, after = self.shape[:-2], shape[:-2]
        query, key = (
            side.expand(*before, *side.shape[-2:]).reshape(*after, *side.shape[-2:]) for side in (self.query, self.key)
        )
        added = None if self.added is None else self.added.expand(self.shape).reshape(shape)
        return replace(self, query=query, key=key, shape=shape, added=added)

    def times(self, factor: Any, sign: int) -> "Logits | None":
        """The logits times a number, or times the numbers of heads or queries; divided by them for sign −1."""
        if isinstance(factor, Tensor) and factor.numel() > 1:
            if factor.shape[-1] != 1:  # a mask of zeros and ones, as in the first GPT
                return self.where(factor) if bool(((factor == 0) | (factor == 1)).all()) else None
            factor = factor if sign > 0 else 1 / factor
            scaled = replace(self, query=self.query * factor)
        else:
            factor = float(factor) ** sign
            scaled = replace(self, scale=self.scale * factor)
        if self.added is None or self.added.dtype == torch.bool:
            return scaled
        return replace(scaled, added=self.added * factor)

    def plus(self, term: Any, sign: int) -> "Logits | None":
        """The logits plus a mask or biases, or minus them; what is the same for all tokens changes no attention."""
        if isinstance(getattr(term, MARK, None), Logits):
            return None
        if not isinstance(term, Tensor) or (term.shape or (1,))[-1] == 1 < self.shape[-1]:
            return self
        depends = self.depends or getattr(term, MARK, None) is not None
        return replace(self, added=joined_masks(self.added, sign * term), depends=depends)

    def where(self, allowed: Tensor) -> "Logits":
        """The logits where tokens are allowed, −inf elsewhere."""
        return replace(self, added=joined_masks(self.added, allowed.bool()))


@dataclass(frozen=True)
class Probabilities:
    """The softmax of some logits."""

    logits: Logits
    own: Tensor


class LogitTrace:
    """Marks what depends on the tokens of a module while it runs, and keeps the call of its attention in ``calls``.

    Without ``calls`` nothing is kept, and logits are marked as other things that depend on the tokens. Logits may be
    scaled, masked, reshaped, and added to. Anything else that is done to them is not followed, so that there is no call
    then. A softmax counts if it is multiplied with values.
    """

    def __init__(self, name: str, calls: list[AttentionCall | Exception] | None, inputs: Any) -> None:
        self.name, self.calls = name, calls
        self._kept: list[Probabilities] = []
        floats = [one for one in tensors_in(inputs) if one.is_floating_point()]
        self._tokens = [one for number, one in enumerate(floats) if number == 0 or one.ndim == 3]
        for one in self._tokens:
            setattr(one, MARK, TOKENS)

    def close(self) -> None:
        """Leave the inputs as they were."""
        for one in self._tokens:
            if hasattr(one, MARK):
                delattr(one, MARK)

    def __call__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function, and mark what it returns."""
        if function is functional.multi_head_attention_forward and self.calls is not None:
            return self._multi_head(*args, **kwargs)
        depends = any(hasattr(one, MARK) for one in tensors_in((args, kwargs)))
        output = function(*args, **kwargs)
        if not depends:
            return output
        name = getattr(function, "__name__", "")
        picks = name in PICKS and any(hasattr(one, MARK) for one in tensors_in((args[1:], kwargs)))
        chosen = picks or any(getattr(one, MARK, None) is CHOSEN for one in tensors_in((args, kwargs)))
        mark: Any = CHOSEN if chosen else TOKENS
        if self.calls is not None:
            with contextlib.suppress(Exception):  # an unusual call; the model goes on
                mark = self._mark(name, args, kwargs, output) or mark
        if name == "softmax" and not isinstance(mark, Probabilities) and self.calls is not None:
            what = "of logits other than scaled products of queries and keys plus biases"
            self.calls.append(ProblemError(f"model: {self.name} computes a softmax {what}"))
        for one in tensors_in((args[0] if name == "__setitem__" else output,)):
            with contextlib.suppress(AttributeError):  # a tensor without a dictionary
                setattr(one, MARK, mark)
        return output

    def _mark(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        """What an output is; None if it is nothing but dependent on the tokens."""
        marks = [getattr(one, MARK, None) for one in args]
        if name in ("matmul", "__matmul__", "bmm"):
            return self._product(args[0], _moved(args[1], args[1].mT), output)
        if name == "einsum":
            weighs = isinstance(getattr(args[1], MARK, None), Probabilities)
            one, other = args[1:3] if weighs else _operands(*args)
            return self._product(one, other, output)
        if name == "baddbmm":
            product = self._product(args[1], _moved(args[2], args[2].mT), output)
            if product is None:
                return None
            scaled = replace(product, scale=float(kwargs.get("alpha", 1)))
            return scaled.plus(_moved(args[0], kwargs.get("beta", 1) * args[0]), 1)
        at = next((n for n, mark in enumerate(marks[:3]) if isinstance(mark, Logits | Probabilities)), None)
        if at is None or not isinstance(output, Tensor):
            return None
        mark, others = marks[at], [one for n, one in enumerate(args) if n != at]
        if name in SAME:
            return mark
        if isinstance(mark, Probabilities):
            if name == "masked_fill" and others[1] == 0:  # of padding
                return replace(mark, own=output)
            reshaped = name in RESHAPED and output.shape[-2:] == mark.logits.shape[-2:]
            return mark if name in ("dropout", "nan_to_num") or reshaped else None
        assert isinstance(mark, Logits)
        return self._of_logits(name, mark, at, others, kwargs, output)

    def _of_logits(
        self, name: str, logits: Logits, at: int, others: list[Any], kwargs: dict[str, Any], output: Tensor
    ) -> Any:
        """What a function makes of logits, its argument of number ``at``."""
        if name in RESHAPED:
            return logits.reshaped(output.shape)
        if name == "softmax":
            dim = kwargs.get("dim", others[0] if others else None)
            return Probabilities(logits, output) if dim in (-1, output.ndim - 1) else None
        if name in ("masked_fill", "masked_fill_"):
            return logits.where(~others[0].bool()) if _excludes(others[1]) else None
        if name == "where":
            return logits.where(others[0].bool() if at == 1 else ~others[0].bool()) if _excludes(others[1]) else None
        if name in FLOORS:
            floor = others[0] if others else kwargs.get("min")
            return (
                logits if floor is not None and len(others) < 2 and "max" not in kwargs and _excludes(floor) else None
            )
        if kwargs or len(others) != 1:
            return None
        if name in SUMS:
            minus = "sub" in name
            return None if minus and at == 1 else logits.plus(others[0], -1 if minus else 1)
        if name in FACTORS or (name in DIVISORS and at == 0):
            return logits.times(others[0], 1 if name in FACTORS else -1)
        return None

    def _product(self, one: Tensor, other: Tensor, output: Tensor) -> Logits | None:
        """Logits, if both sides depend on tokens; None for a product with values, whose softmax is kept."""
        mark = getattr(one, MARK, None)
        if isinstance(mark, Probabilities):
            if self.calls is not None and not any(mark is kept for kept in self._kept):
                self._kept.append(mark)
                logits = mark.logits
                added = None if logits.added is None else logits.added.expand(logits.shape)
                self.calls.append(
                    AttentionCall(
                        logits.query,
                        logits.key,
                        added,
                        logits.scale,
                        own=mark.own.reshape(logits.shape),
                        mixed=(other, output),
                        dropout=0.0,
                        biases_of_tokens=logits.depends,
                    )
                )
            return None
        if {mark, getattr(other, MARK, None)} != {TOKENS} or not one.ndim == other.ndim >= 3:
            return None
        return Logits(one, other, output.shape)

    def _multi_head(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Call ``multi_head_attention_forward``, which returns the mean of its heads, and keep that of each."""
        given = signatures.signature(functional.multi_head_attention_forward).bind(query, key, value, *args, **kwargs)
        given.apply_defaults()
        named = given.arguments | {"need_weights": True, "average_attn_weights": False}
        output, own = functional.multi_head_attention_forward(**named)
        assert self.calls is not None
        assert own is not None
        sides = []
        for part, states in enumerate((query, key)):
            weight = (named["q_proj_weight"], named["k_proj_weight"])[part]
            if weight is None:
                weight = named["in_proj_weight"].chunk(3)[part]
            bias = None if named["in_proj_bias"] is None else named["in_proj_bias"].chunk(3)[part]
            made = functional.linear(states, weight, bias)
            sides.append(made.view(*made.shape[:2], named["num_heads"], -1).permute(1, 2, 0, 3))
        b, H, Q, T = own.shape
        mask, padding = named["attn_mask"], named["key_padding_mask"]
        depends = getattr(mask, MARK, None) is not None
        mask = mask.reshape(b, H, Q, T) if mask is not None and mask.ndim == 3 else mask
        mask, padding = (~one if one is not None and one.dtype == torch.bool else one for one in (mask, padding))
        padding = None if padding is None else padding[:, None, None]
        self.calls.append(
            AttentionCall(
                sides[0],
                sides[1],
                joined_masks(mask, padding),
                sides[0].shape[-1] ** -0.5,
                own=own,
                dropout=named["dropout_p"] if named["training"] else 0.0,
                biases_of_tokens=depends,
            )
        )
        if not given.arguments["need_weights"]:
            return output, None
        return output, own.mean(dim=1) if given.arguments["average_attn_weights"] else own


def _moved(tensor: Tensor, view: Tensor) -> Tensor:
    """A view of a tensor, with its mark."""
    mark = getattr(tensor, MARK, None)
    if mark is not None:
        setattr(view, MARK, mark)
    return view


def _operands(equation: str, *operands: Any) -> tuple[Tensor, Tensor]:
    """Both sides of a product of einsum: with the axes of its output, and one that is summed over as the last one.

    Raises ValueError if it is no such product.
    """
    one, other = operands[0] if len(operands) == 1 else operands
    (first, second), output = (part.split(",") for part in equation.replace(" ", "").split("->"))
    lead, query, key = output[0][:-2], output[0][-2], output[0][-1]
    [summed] = {*first} & {*second} - {*output[0]}
    sides = []
    for side, labels, of_side in ((one, first, lead + query + summed), (other, second, lead + key + summed)):
        if len(labels) != len(of_side):
            raise ValueError(equation)
        sides.append(_moved(side, side.permute([labels.index(label) for label in of_side])))
    return sides[0], sides[1]


def tensors_in(found: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dictionaries."""
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, dict | tuple | list):  # not caches, which can be iterated over as well
        for one in found.values() if isinstance(found, dict) else found:
            yield from tensors_in(one)


def _excludes(value: Any) -> bool:
    """Whether logits of this value are excluded."""
    return bool(value.max() <= LOWEST) if isinstance(value, Tensor) else value <= LOWEST
