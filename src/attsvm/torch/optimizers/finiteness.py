"""Whether tensors are finite, with one synchronization per device for any number of tensors."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attsvm.torch.optimizers.norms import largest_entries
from attsvm.torch.optimizers.sharding import Sharding, local_shard, sharding_of


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every entry of every tensor is finite, on every process that holds a part of one."""
    return largest_entry(tensors) < math.inf


def largest_entry(tensors: Sequence[Tensor]) -> float:
    """The largest absolute value, over every process that holds a part of a tensor; infinity if an entry is NaN."""
    devices: dict[torch.device, list[Tensor]] = {}
    # a dict keeps the order, which must be the same on every process
    shardings: dict[Sharding, None] = {}
    for tensor in tensors:
        devices.setdefault(tensor.device, []).append(local_shard(tensor))
        shardings[sharding_of(tensor)] = None
    largest = max((_largest_on(device, here) for device, here in devices.items()), default=0.0)
    # every process takes part in each reduction, even if its own tensors are not finite
    for sharding in shardings:
        if sharding.split:
            here = torch.tensor([largest], dtype=torch.float64, device=sharding.mesh.device_type)
            largest = sharding.largest(here).item()
    return largest


def is_finite(tensor: Tensor) -> bool:
    """Whether every entry of a tensor (of the part that this process holds) is finite."""
    return bool(torch.isfinite(local_shard(tensor)).all())


def _largest_on(device: torch.device, tensors: list[Tensor]) -> float:
    if device.type == "cpu":
        # Last to first: the step goes from first to last, and finds the tensors read last in the cache. One call per
        # tensor: in small models the calls take the time.
        extremes = [x for tensor in reversed(tensors) if tensor.numel() for x in torch.aminmax(tensor)]
    else:
        extremes = largest_entries(tensors)
    largest = float(torch.stack(extremes).abs().max()) if extremes else 0.0
    return math.inf if math.isnan(largest) else largest
