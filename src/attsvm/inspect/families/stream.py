"""The residual stream of a transformer, followed through a pass of the model: what adds to it, and its norms."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from attsvm.errors import ProblemError
from attsvm.inspect.families.logit_trace import DIVISORS, FACTORS, RESHAPED, SAME, SUMS, tensors_in

BIASES = "biases"
"""Origin of what does not depend on the text: the biases of output projections, of norms, of queries and of keys."""

CONSTANT = "constant"
"""What is the same for every query, or for every key: the mean over all of them."""

POSITION_BIASES, BIASES_OF_TOKENS = "position biases", "biases of positions and tokens"
"""Origins of what a layer adds to its logits, as T5 and ALiBi do, and DeBERTa. They belong to pairs of places."""

NOT_LINEAR = 1e-3
"""Largest difference of a norm from a linear map at its actual scale, relative to its largest output."""

Parts = dict[str, Tensor]
"""A stream (b, T, d) split by origin; the parts add up to it."""

MIXERS = ("mamba", "deltanet", "linearattention", "lightningattention", "shortconv", "recurrent")
"""Parts of class names of modules in the place of attention, whose origins have the name of their class."""

PRODUCTS = {
    "linear", "addmm", "matmul", "__matmul__", "mm", "bmm", "baddbmm", "einsum", "_grouped_mm", "conv1d", "conv2d",
    "embedding", "scaled_dot_product_attention", "multi_head_attention_forward",
}  # fmt: skip
"""Functions whose output is a part of its own, and no longer the stream."""


@dataclass(frozen=True, eq=False)
class Written:
    """What a part of the model writes to the stream."""

    origin: str  # empty if it follows from the layer: that of an attention layer, or of the MLP behind it
    number: int  # in the order of the pass
    tensor: Tensor
    layer: int | None  # the attention layer that runs, or has run last
    inside: bool  # whether it runs
    # a linear layer that made it: its input, weight and bias. The input may be the outputs of the heads, side by side
    linear: tuple[Tensor, Tensor, Tensor | None] | None = None

    def parts(self, shape: torch.Size, heads: Mapping[int, Tensor], first: bool) -> Parts:
        """The parts (b, T, d) by origin, in float64.

        ``heads``: outputs (b, H, T, d_v) of the heads of each layer. ``first``: whether no attention was written to
        this stream before.
        """
        if self.origin:
            return {self.origin: _double(self.tensor, shape)}
        layer, outputs = self.layer, None if self.layer is None else heads.get(self.layer)
        if self.linear is not None and outputs is not None:
            inputs, weight, bias = self.linear
            beside = outputs.transpose(1, 2).flatten(-2)  # the outputs of the heads side by side
            if inputs.numel() == beside.numel() and torch.allclose(inputs.reshape(beside.shape), beside, 1e-4, 1e-6):
                sides = (
                    side.chunk(outputs.shape[1], dim=-1) for side in (_double(inputs, shape), weight.cpu().double())
                )
                found = {BIASES: torch.zeros(shape).double() if bias is None else _double(bias, shape)}
                for head, (of_head, columns) in enumerate(zip(*sides, strict=True)):
                    found[f"head {layer}.{head}"] = functional.linear(of_head, columns)
                return found
        if first and not self.inside:  # "input" is what another stack of layers has made, as of coarser patches
            return {"embedding" if layer is None else "input": _double(self.tensor, shape)}
        return {f"{'attention' if self.inside else 'MLP'} {layer}": _double(self.tensor, shape)}


@dataclass(frozen=True, eq=False)
class Sum:
    """The sum of two streams."""

    of: tuple["Node", ...]


@dataclass(frozen=True, eq=False)
class Multiple:
    """A stream times a number, or times one number for each coordinate."""

    of: tuple["Node", ...]
    factor: Any

    @property
    def scale(self) -> Tensor:
        """The factor in float64."""
        return torch.as_tensor(self.factor).detach().cpu().double()


@dataclass(frozen=True, eq=False)
class Normed:
    """The norm of a stream."""

    of: tuple["Node", ...]
    norm: nn.Module


@dataclass(frozen=True, eq=False)
class Lost:
    """A stream behind a function that is not followed."""

    function: str


Node = Written | Sum | Multiple | Normed | Lost
"""How a stream is made."""


def _double(tensor: Tensor, shape: torch.Size) -> Tensor:
    """A tensor of the places (b, T), whose axes may be flattened or left out, in float64; ``shape``: of the stream."""
    tensor = tensor.detach().cpu().double()
    if tensor.numel() == shape[:-1].numel() * tensor.shape[-1]:
        return tensor.reshape(*shape[:-1], -1)
    return tensor.expand(*shape[:-1], -1)


def leaves(node: Node) -> list[Written]:
    """What is written to a stream, in the order of the pass.

    Raises ProblemError if the stream passes a function that is not followed.
    """
    if isinstance(node, Lost):
        raise ProblemError(f"model: its residual stream is not known behind its function {node.function}")
    if isinstance(node, Written):
        return [node]
    return sorted({one for inner in node.of for one in leaves(inner)}, key=lambda one: one.number)


def split(node: Node, written: Mapping[Written, Parts]) -> Parts:
    """A stream by origin, from what each leaf writes, with every norm at its actual scale."""
    match node:
        case Written():
            return written[node]
        case Sum():
            one, other = (split(inner, written) for inner in node.of)
            return joined(one, other)
        case Multiple():
            return {origin: part * node.scale for origin, part in split(node.of[0], written).items()}
        case Normed():
            return normed(node.norm, split(node.of[0], written))
        case Lost():
            raise AssertionError(node.function)


def joined(parts: Parts, more: Parts) -> Parts:
    """The sum of two split streams."""
    return parts | {origin: parts[origin] + part if origin in parts else part for origin, part in more.items()}


def normed(norm: nn.Module, parts: Parts) -> Parts:
    """A norm of a split stream, with every part at the scale of the whole stream.

    The parts of the result add up to the norm of the sum. A norm maps x to s(x) g∘(x − μ(x)) + b, with a number s(x)
    for each place, and μ(x) the mean of x or 0. The gains g, the bias b and μ follow from three vectors, and s(x) from
    the norm of the sum.

    Raises
    ------
    ProblemError
        If it is not of this kind.
    """
    total = sum(parts.values(), torch.zeros(())).double()
    weights = {name: one.detach().cpu().double() for name, one in norm.named_parameters()}

    def call(x: Tensor) -> Tensor:
        output: Tensor = functional_call(norm, weights, (x,))
        return output.double()

    ones = torch.ones(1, 1, total.shape[-1], dtype=torch.float64)
    balanced = ones.clone()
    balanced[..., -1] = 1 - ones.shape[-1]  # its mean is 0
    bias = call(0 * ones).nan_to_num()
    gains = (call(balanced) - bias) / balanced  # up to a factor
    if (call(ones) - bias).abs().max() < 1e-2 * gains.abs().max() * balanced.square().mean().sqrt():
        parts = {origin: part - part.mean(dim=-1, keepdim=True) for origin, part in parts.items()}
        total = total - total.mean(dim=-1, keepdim=True)
    shaped, output = total * gains, call(total) - bias
    scale = ((output * shaped).sum(-1, keepdim=True) / shaped.square().sum(-1, keepdim=True)).nan_to_num()
    if not (output - scale * shaped).abs().max() <= NOT_LINEAR * output.abs().max():
        raise ProblemError(f"model: expected a norm that is linear at its actual scale, got {type(norm).__name__}")
    scaled = {origin: part * gains * scale for origin, part in parts.items()}
    return joined(scaled, {BIASES: bias.expand_as(total)}) if bias.any() else scaled


class StreamTrace(TorchFunctionMode):
    """Follows sums, factors and norms of tensors while a model runs.

    Every tensor that is added to another one, and is not followed itself, is :class:`Written` by a part of the model.
    What happens inside such a part, as an MLP, is of no interest.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.layer: int | None = None  # the attention layer that runs, or has run last
        self.inside = False  # whether it runs
        self.entering: tuple[Node, ...] = ()  # the streams that an inspected layer reads
        self.continues = False  # whether one of them is added to later: then it is the stream itself, and not its norm
        self.nodes: Any = WeakTensorKeyDictionary()  # how tensors are made from what the parts of the model write
        self._number = 0
        self._names = {
            id(one): BIASES if one.ndim == 1 else "position"
            for name, one in model.named_parameters()
            if one.ndim == 1 or _origin(name) == "position"
        }
        self._model = model

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Follow the passes of the model in the block."""
        with contextlib.ExitStack() as stack:
            for name, module in self._model.named_modules():
                kind = type(module).__name__.lower()
                if "norm" in kind and next(module.children(), None) is None:
                    stack.callback(module.register_forward_hook(self._norm, with_kwargs=True).remove)
                elif isinstance(module, nn.Embedding) or ("position" in kind and "embedding" in kind):
                    stack.callback(module.register_forward_hook(self._named(_origin(name))).remove)
                elif any(word in kind for word in MIXERS):
                    stack.callback(module.register_forward_hook(self._named(type(module).__name__)).remove)
            stack.enter_context(self)
            yield

    def begin(self, layer: int, inputs: Any) -> None:
        """Note that an attention layer runs from now on."""
        for tokens in (one for one in tensors_in(inputs) if one.ndim == 3 and one.is_floating_point()):
            self._mark(tokens, self.node(tokens))
        self.layer, self.inside = layer, True

    def end(self, module: nn.Module, args: Any, output: Any) -> None:
        """Note that it has run, and what it wrote."""
        first = next(tensors_in(output))
        self._mark(first, self.node(first))
        self.inside = False

    def node(self, tensor: Tensor, *, kept: bool = True) -> Node:
        """How a tensor is made; ``kept``: whether it does not change afterwards."""
        found: Node | None = self.nodes.get(tensor)
        if found is not None:
            return found
        origin = self._names.get(id(tensor if tensor._base is None else tensor._base), "")
        return self.written(origin, tensor if kept else tensor.clone())

    def written(self, origin: str, tensor: Tensor, linear: Any = None, inside: bool = False) -> Written:
        """A tensor that is written here."""
        self._number += 1
        return Written(origin, self._number, tensor, self.layer, self.inside or inside, linear)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        sides: tuple[Node, ...] = ()
        if name in SUMS and not kwargs and all(isinstance(one, Tensor) for one in args):
            in_place = name.startswith("__i") or name in ("add_", "sub_")
            if any(_is_stream(one) for one in args):
                sides = tuple(self.node(one, kept=not in_place) for one in args)
        output = func(*args, **kwargs)
        if name == "__setitem__" and args[0] in self.nodes:
            self.nodes[args[0]] = Lost(name)
        for one in tensors_in(output):
            if _is_stream(one):
                self._mark(one, self._made(name, args, kwargs, one, sides))
        return output

    def _made(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor, sides: tuple[Node, ...]
    ) -> Node | None:
        """How the output of a function is made; None if it is not followed, and not the stream."""
        if sides:
            self.continues |= any(side is one for side in sides for one in self.entering)
            return Sum((sides[0], Multiple((sides[1],), -1.0)) if "sub" in name else sides)
        if name in PRODUCTS:
            return self._linear(name, args, kwargs, output)
        nodes: list[Node] = [self.nodes[one] for one in tensors_in((args, kwargs)) if one in self.nodes]
        if not nodes:
            return None
        first: Any = next(iter(args), None)
        if name in SUMS and 0 in [one for one in args if isinstance(one, int | float)]:
            return nodes[0]
        if name in SAME or name == "dropout" or (name in RESHAPED and first.shape[-1] == output.shape[-1]):
            return nodes[0]
        if (name in FACTORS or (name in DIVISORS and first in self.nodes)) and len(args) == 2 and len(nodes) == 1:
            factor = args[1] if first in self.nodes else first
            if not isinstance(factor, Tensor) or factor.numel() == 1 or factor.ndim == 1:
                return Multiple((nodes[0],), factor if name in FACTORS else 1 / factor)
            if bool(((factor == 0) | (factor == 1)).all()):  # of padding, which is not compared
                return nodes[0]
        if all(isinstance(one, Written) and one.origin == "embedding" for one in nodes):
            return self.written("embedding", output)  # as tokens in whose places pictures are put
        return None if all(self._within(one) for one in nodes) else Lost(name)

    def _within(self, node: Node) -> bool:
        """Whether it is all made by the part of the model that runs now."""
        if isinstance(node, Written):
            return not node.origin and (node.layer, node.inside) == (self.layer, self.inside)
        return not isinstance(node, Lost) and all(self._within(one) for one in node.of)

    def _linear(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Written | None:
        """What a linear layer writes that may be the output projection of the heads."""
        if name == "linear":
            named = dict(zip(("input", "weight", "bias"), args, strict=False)) | kwargs
            inputs, weight, bias = named["input"], named["weight"], named.get("bias")
        elif name == "addmm" and not kwargs:
            bias, inputs, weight = args[0], args[1], args[2].T
        elif name in ("matmul", "__matmul__") and args[1].ndim == 2:
            bias, inputs, weight = None, args[0], args[1].T
        else:
            return None
        behind = self.nodes.get(inputs)  # the projection may be behind the module that is called attention
        inside = self.inside or (isinstance(behind, Written) and behind.inside)
        if not inside or not weight.is_floating_point():
            return None
        return self.written("", output, (inputs, weight, bias), inside)

    def _mark(self, tensor: Tensor, node: Node | None) -> None:
        """Note how a tensor is made."""
        if node is None:
            self.nodes.pop(tensor, None)
        else:
            self.nodes[tensor] = node

    def _norm(self, norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Note a norm, whatever functions it calls."""
        if not isinstance(output, Tensor):
            return
        if len(args) == 1 and not kwargs:
            node = self.node(args[0])
            self._mark(args[0], node)  # it may be added later to what is written from now on
            self._mark(output, Normed((node,), norm))
        else:
            self._mark(output, Lost(type(norm).__name__))

    def _named(self, origin: str) -> Callable[..., None]:
        def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if isinstance(output, Tensor):
                self._mark(output, self.written(origin, output))

        return note


def _is_stream(tensor: Tensor) -> bool:
    """Whether a tensor may be a part of the stream."""
    return tensor.ndim > 1 and tensor.is_floating_point()


def _origin(name: str) -> str:
    """The origin of a table of embeddings, from its name in the model."""
    last = name.removesuffix(".weight").rpartition(".")[2]
    if "pos" in last or last == "wpe":
        return "position"
    return "token type" if "token_type" in last else "embedding"
