"""The residual stream of a transformer: the modules that add to it, and the norms in between, in order."""

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


@dataclass(frozen=True)
class Adds:
    """The output of a module is added to the stream.

    Attributes
    ----------
    origin : str
        What the stream receives from it, such as "embedding". ``{layer}`` in it becomes the number of the layer.
    module : Module
    """

    origin: str
    module: nn.Module


@dataclass(frozen=True)
class AddsHeads:
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


@dataclass(frozen=True)
class Norms:
    """The stream itself is normalised, as in BERT."""

    module: nn.Module


Step = Adds | AddsHeads | Norms
"""One change of the residual stream."""


def watch(step: Step, keep: Callable[[Tensor], None]) -> RemovableHandle | None:
    """Keep the tensor of a pass of the model from which :func:`written` follows."""
    match step:
        case Adds():
            return step.module.register_forward_hook(lambda _, __, output: keep(output))
        case AddsHeads():  # the outputs of the heads before their projection
            return step.projection.register_forward_pre_hook(lambda _, arguments: keep(arguments[0]))
        case Norms():
            return None


def written(step: Step, kept: Tensor | None, layer: int) -> Parts:
    """What a step adds, by origin, in float64; ``layer`` attention layers come before it."""
    if kept is None:
        return {}
    if isinstance(step, Adds):
        return {step.origin.format(layer=layer - 1): kept}
    assert isinstance(step, AddsHeads)
    projection = step.projection
    weights = {name: weight.detach().cpu().double() for name, weight in projection.named_parameters()}

    def projected(heads: Tensor) -> Tensor:
        output: Tensor = functional_call(projection, weights, (heads,))
        return output

    bias = projected(torch.zeros_like(kept))
    parts = {BIASES: bias}
    size = kept.shape[-1] // step.heads
    for head in range(step.heads):
        alone, at = torch.zeros_like(kept), slice(head * size, (head + 1) * size)
        alone[..., at] = kept[..., at]
        parts[f"head {layer}.{head}"] = projected(alone) - bias
    return parts


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


@normed.register(nn.LayerNorm)
@normed.register(nn.RMSNorm)
def _(norm: Any, parts: Parts) -> Parts:
    eps, bias = norm.eps, getattr(norm, "bias", None)
    if isinstance(norm, nn.LayerNorm):
        parts = {origin: part - part.mean(dim=-1, keepdim=True) for origin, part in parts.items()}
    elif eps is None:
        eps = torch.finfo(torch.float32).eps
    scale = (sum(parts.values(), torch.zeros(())).square().mean(dim=-1, keepdim=True) + eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.detach().cpu().double()
    scaled = {origin: part * scale for origin, part in parts.items()}
    if bias is None:
        return scaled
    return joined(scaled, {BIASES: bias.detach().cpu().double().expand_as(scale)})


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
