"""Whether gradients are finite, for one wait on each device however many tensors there are."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attsvm.torch.sharding import Sharding, local_shard, sharding_of


def all_finite(gradients: Sequence[Tensor]) -> bool:
    """Whether every entry of every gradient is finite, on every process that holds a part of one."""
    devices: dict[torch.device, list[Tensor]] = {}
    for gradient in map(local_shard, gradients):
        devices.setdefault(gradient.device, []).append(gradient)
    finite = all(_finite_on(device, here) for device, here in devices.items())
    # every process takes part in each agreement whatever it has seen, and in equal order: a dict keeps it
    for sharding in dict.fromkeys(map(sharding_of, gradients)):
        if sharding.split:
            finite = _agreed(finite, sharding)
    return finite


def nonfinite_among(gradients: Sequence[Tensor]) -> list[int]:
    """Which of the gradients (their local shards) hold an infinity or a NaN; waits once a tensor."""
    return [i for i, gradient in enumerate(gradients) if not bool(torch.isfinite(local_shard(gradient)).all())]


def _finite_on(device: torch.device, gradients: list[Tensor]) -> bool:
    if device.type != "cpu":
        filled = [x for x in gradients if x.numel()]
        return not filled or bool(torch.isfinite(torch.stack(torch._foreach_norm(filled, float("inf")))).all())
    # a sum is not finite where a term is not, and runs at the speed of memory; where it overflowed, look again
    sums = torch.stack([x.sum(dtype=torch.promote_types(x.dtype, torch.float32)).double() for x in gradients])
    return bool(torch.isfinite(sums.sum())) or not nonfinite_among(gradients)


def _agreed(finite: bool, sharding: Sharding) -> bool:
    flag = torch.tensor([0.0 if finite else 1.0], device=sharding.mesh.device_type)
    return not bool(sharding.largest(flag).item())
