"""AdamW, for the parameters of a model that are no matrices of hidden layers: embeddings, output, gains and biases."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

FIRST, SECOND, COUNT = "exp_avg", "exp_avg_sq", "step"
"""The entries of the state, as `torch.optim.AdamW` names them."""

_FUSED = ("cpu", "cuda")


class Moments(NamedTuple):
    """A parameter in the dtype of the state, with its gradient and state; shards of this process, if it is sharded."""

    weights: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor
    number: Tensor


def add_moments(state: dict[str, Any], weights: Tensor) -> None:
    """Create what is missing in the state of a parameter, with weights of the dtype of the state."""
    if COUNT not in state:
        state[COUNT] = torch.zeros((), dtype=torch.float32, device=count_device(weights.device))
        for name in (FIRST, SECOND):
            state[name] = torch.zeros_like(weights, memory_format=torch.preserve_format)


def count_device(device: torch.device) -> torch.device:
    """Where the number of steps of a parameter on a device is kept."""
    return device if device.type in _FUSED else torch.device("cpu")


def adamw_step(group: dict[str, Any], moments: list[Moments], scale: float) -> None:
    """Take the step of `torch.optim.AdamW` along scale times the gradients, in place."""
    apart: dict[bool, list[Moments]] = {}
    for one in moments:
        gradient = one.gradient.to(one.weights.dtype)
        one = one._replace(gradient=gradient if scale == 1.0 else gradient * scale)
        apart.setdefault(_fits_fused(one), []).append(one)
    for fused, several in apart.items():
        columns = [list(column) for column in zip(*several, strict=True)]
        weights, gradients, first, second, counts = columns
        beta1, beta2 = group["betas"]
        # None: torch chooses between one tensor after the other and several at once
        adamw(
            weights,
            gradients,
            first,
            second,
            [],
            counts,
            fused=fused or None,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=float(group["lr"]),
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _fits_fused(one: Moments) -> bool:
    """Whether the fused kernel takes a tensor: it reads memory from first to last, in all tensors in the same order."""
    dense = torch.empty_like(one.weights, memory_format=torch.preserve_format).stride()
    return one.weights.device.type in _FUSED and all(x.stride() == dense for x in one[:4])
