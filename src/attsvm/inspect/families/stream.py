"""The residual stream of a transformer: the modules that add to it, and the norms in between, in order."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.hooks import RemovableHandle

from attsvm.errors import ProblemError

BIASES = "biases"
"""Origin of what does not depend on the text: the biases of output projections, of norms, of queries and of keys."""

CONSTANT = "constant"
"""What is the same for every query, or for every key: the mean over all of them."""

Parts = dict[str, Tensor]
"""A stream (b, T, d) split by origin; the parts add up to it."""


class Step(ABC):
    """One change of the residual stream."""

    @property
    def reader(self) -> "AddsHeads | None":
        """The step itself if it is an attention layer."""
        return None

    @abstractmethod
    def watched(self, keep: Callable[[Tensor], None]) -> list[RemovableHandle]:
        """Hooks that keep what :meth:`written` needs from a call of the model: one tensor each."""

    @abstractmethod
    def written(self, kept: list[Tensor], layer: int) -> Parts:
        """What the step adds, by origin, in float64; ``layer`` attention layers come before it."""

    def changed(self, parts: Parts, written: Parts) -> Parts:
        """The stream after this step."""
        return joined(parts, written)


@dataclass(frozen=True)
class Adds(Step):
    """The output of a module is added to the stream.

    Attributes
    ----------
    origin : str
        What the stream receives from it, such as "embedding". ``{layer}`` in it becomes the number of the layer.
    module : Module
    """

    origin: str
    module: nn.Module

    def watched(self, keep: Callable[[Tensor], None]) -> list[RemovableHandle]:
        """Keep its output."""
        return [self.module.register_forward_hook(lambda _, __, output: keep(output))]

    def written(self, kept: list[Tensor], layer: int) -> Parts:
        """Its output, as one origin."""
        return {self.origin.format(layer=layer - 1): kept[0]}


@dataclass(frozen=True)
class AddsHeads(Step):
    """An attention layer: the outputs of its heads, side by side, are projected and added to the stream.

    Attributes
    ----------
    attention : Module
        As :meth:`Family.matches` finds it.
    projection : Module
        Affine; it makes the output (b, T, d) of the heads (b, T, H · d_h).
    heads : int
    norm : Module
        Through which the layer reads the stream.
    """

    attention: nn.Module
    projection: nn.Module
    heads: int
    norm: nn.Module = field(default_factory=nn.Identity)

    @property
    def reader(self) -> "AddsHeads | None":
        """The step itself."""
        return self

    def watched(self, keep: Callable[[Tensor], None]) -> list[RemovableHandle]:
        """Keep the outputs of the heads before their projection."""

        def before(_: nn.Module, arguments: tuple[Any, ...]) -> None:
            keep(arguments[0])

        return [self.projection.register_forward_pre_hook(before)]

    def written(self, kept: list[Tensor], layer: int) -> Parts:
        """The output of each head, and the bias of the projection."""
        outputs = kept[0]
        weights = {name: weight.detach().cpu().double() for name, weight in self.projection.named_parameters()}

        def projected(heads: Tensor) -> Tensor:
            output: Tensor = functional_call(self.projection, weights, (heads,))
            return output

        bias = projected(torch.zeros_like(outputs))
        parts = {BIASES: bias}
        size = outputs.shape[-1] // self.heads
        for head in range(self.heads):
            alone = torch.zeros_like(outputs)
            at = slice(head * size, (head + 1) * size)
            alone[..., at] = outputs[..., at]
            parts[f"head {layer}.{head}"] = projected(alone) - bias
        return parts


@dataclass(frozen=True)
class Norms(Step):
    """The stream itself is normalised, as in BERT."""

    module: nn.Module

    def watched(self, keep: Callable[[Tensor], None]) -> list[RemovableHandle]:
        """Nothing is kept."""
        return []

    def written(self, kept: list[Tensor], layer: int) -> Parts:
        """Nothing is added."""
        return {}

    def changed(self, parts: Parts, written: Parts) -> Parts:
        """Every part at the scale of the whole stream."""
        return normed(self.module, parts)


def joined(parts: Parts, more: Parts) -> Parts:
    """The sum of two split streams."""
    return parts | {origin: parts[origin] + part if origin in parts else part for origin, part in more.items()}


@singledispatch
def normed(norm: nn.Module, parts: Parts) -> Parts:
    """A norm of a split stream, with every part at the scale of the whole stream.

    The parts of the result add up to the norm of the sum. Register the norm of another package with
    ``normed.register``.

    Raises
    ------
    ProblemError
        If the kind of norm is not known.
    """
    known = ", ".join(kind.__name__ for kind in normed.registry if kind not in (object, nn.Module))
    raise ProblemError(f"model: expected a norm of a known kind ({known}), got {type(norm).__name__}")


@normed.register
def _(norm: nn.Identity, parts: Parts) -> Parts:
    return parts


@normed.register
def _(norm: nn.LayerNorm, parts: Parts) -> Parts:
    centred = {origin: part - part.mean(dim=-1, keepdim=True) for origin, part in parts.items()}
    variance = sum(centred.values(), torch.zeros(())).square().mean(dim=-1, keepdim=True)
    scale = (variance + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.detach().cpu().double()
    scaled = {origin: part * scale for origin, part in centred.items()}
    if norm.bias is None:
        return scaled
    return joined(scaled, {BIASES: norm.bias.detach().cpu().double().expand_as(next(iter(scaled.values())))})


@normed.register
def _(norm: nn.RMSNorm, parts: Parts) -> Parts:
    square = sum(parts.values(), torch.zeros(())).square().mean(dim=-1, keepdim=True)
    eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
    scale = (square + eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.detach().cpu().double()
    return {origin: part * scale for origin, part in parts.items()}


def find_module(model: nn.Module, name: str) -> Any:
    """The module of a model whose class has this name.

    Raises
    ------
    ProblemError
        If there is none, or more than one.
    """
    found = [module for module in model.modules() if type(module).__name__ == name]
    if len(found) != 1:
        raise ProblemError(f"model: expected one {name} in {type(model).__name__}, got {len(found)}")
    return found[0]
