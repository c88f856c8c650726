"""Tensors that are updated together, and the update of their mirror variables and weights.

    b ← momentum·b + g,    z ← decay·z − lr·D(b),    w ← sign(z)|z|^(1/(p−1)),

with the state z = ∇ψ(w) = sign(w)|w|^(p−1).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from attsvm.torch.optimizers import compiled, eager
from attsvm.torch.optimizers.norms import Sharding

Given = tuple[int, Tensor, Tensor]
"""A parameter that has a gradient: its index in its group, the parameter, the gradient."""

Shaped = tuple[list[Tensor], list[Tensor], list[Tensor]]
"""The directions of a batch, and the step and the divisor of each."""


@dataclass
class Batch:
    """Tensors of one parameter group that can be updated together.

    They have the same device, dtype and sharding, and are updated by the same kind of kernel.
    """

    # weights, gradients, mirrors: local shards, in the same order; ``mirrors[i] is weights[i]`` if the weights are
    # their own mirror variable
    weights: list[Tensor]
    gradients: list[Tensor]
    mirrors: list[Tensor]
    buffers: list[Tensor] | None  # momentum buffers
    compiled: bool  # whether compiled kernels update them
    sharding: Sharding  # how norms are completed over processes


def descend(batch: Batch, recipe: compiled.Recipe, lr: float, scale: float, momentum: float, decay: float) -> None:
    """An elementwise step; a compiled one is a single pass over memory."""
    if batch.compiled:
        tensors = batch.weights, batch.mirrors, batch.gradients, batch.buffers
        compiled.descend(recipe, *tensors, step=lr, scale=scale, momentum=momentum, decay=decay)
        return
    directions = full_precision(batch)
    if recipe.sign or batch.buffers is not None:
        directions = eager.accumulate(directions, batch.buffers, scale, momentum, recipe.nesterov)
    else:
        lr = lr * scale
    if recipe.sign:
        directions = list(torch._foreach_sign(directions))
    eager.descend(batch.weights, batch.mirrors, directions, exponent=recipe.exponent, step=lr, decay=decay)


def descend_along(batch: Batch, recipe: compiled.Recipe, shaped: Shaped, decay: float) -> None:
    """A step along given directions, each with its own length."""
    directions, steps, divisors = shaped
    tensors = batch.weights, batch.mirrors, directions
    if batch.compiled:
        plain = recipe._replace(sign=False, nesterov=False)
        compiled.descend(plain, *tensors, scaling=(steps, divisors), decay=decay)
    else:
        eager.descend(*tensors, exponent=recipe.exponent, scaling=(steps, divisors), decay=decay)


def full_precision(batch: Batch) -> list[Tensor]:
    """The gradients in the dtype of the mirror variables."""
    dtype = batch.mirrors[0].dtype
    return [x.to(dtype) for x in batch.gradients]
