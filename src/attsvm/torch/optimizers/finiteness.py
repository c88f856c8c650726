"""Whether gradients are finite, with one synchronization per device for any number of tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attsvm.torch.optimizers.sharding import Sharding, local_shard, sharding_of


def all_finite(gradients: Sequence[Tensor]) -> bool:
    """Whether every entry of every gradient is finite, on every process that holds a part of one."""
    devices: dict[torch.device, list[Tensor]] = {}
    # a dict keeps the order, which must be the same on every process
    shardings: dict[Sharding, None] = {}
    for gradient in gradients:
        devices.setdefault(gradient.device, []).append(local_shard(gradient))
        shardings[sharding_of(gradient)] = None
    finite = all(_finite_on(device, here) for device, here in devices.items())
    # every process takes part in each reduction, even if its own gradients are not finite
    for sharding in shardings:
        if sharding.split:
            finite = _agreed(finite, sharding)
    return finite


def is_finite(gradient: Tensor) -> bool:
    """Whether every entry of a gradient (of the part that this process holds) is finite."""
    return bool(torch.isfinite(local_shard(gradient)).all())


def _finite_on(device: torch.device, gradients: list[Tensor]) -> bool:
    if device.type != "cpu":
        filled = [x for x in gradients if x.numel()]
        return not filled or bool(torch.isfinite(torch.stack(torch._foreach_norm(filled, float("inf")))).all())
    # A sum of squares is not finite if an entry is not, and is limited by memory only; it can also overflow, so it is
    # checked again. Last to first: the step goes from first to last, and finds the tensors read last in the cache.
    sums = torch.stack([_sum(x) for x in reversed(gradients)])
    return bool(torch.isfinite(sums).all()) or all(map(is_finite, gradients))


def _sum(x: Tensor) -> Tensor:
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.sum(dtype=torch.float32)
    if x.is_contiguous():
        # a quarter faster than the sum of the entries
        flat = x.view(-1)
        return torch.dot(flat, flat)
    return x.sum()


def _agreed(finite: bool, sharding: Sharding) -> bool:
    flag = torch.tensor([0.0 if finite else 1.0], device=sharding.mesh.device_type)
    return not bool(sharding.largest(flag).item())
