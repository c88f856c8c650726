"""Tensors that are spread over processes, and what concerns all their entries: the largest one, finite or not.

With FSDP2's `DTensor` each process holds a shard of a parameter. A step along b or sign(b) is elementwise, so every
process makes it on its own shard. Norms and the test for finite gradients concern the whole tensor and are completed
here. FSDP1 flattens parameters into ordinary tensors that do not show that they are shards; only elementwise steps are
correct with it.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors
from torch.nn import Parameter

LARGEST_JOINED = 1 << 14
"""Larger tensors are treated one by one on the CPU, where copies of them would leave the caches."""


class Sharding(NamedTuple):
    """The dimensions of a device mesh over which a tensor is split; none for an ordinary tensor."""

    mesh: Any = None
    split: tuple[int, ...] = ()  # the mesh dimensions along which processes hold different entries

    def total(self, values: Tensor) -> Tensor:
        """Sums over the processes that share a tensor; ``values`` is overwritten."""
        return self._reduce(values, "SUM")

    def largest(self, values: Tensor) -> Tensor:
        """Maxima over them; ``values`` is overwritten."""
        return self._reduce(values, "MAX")

    def _reduce(self, values: Tensor, operation: str) -> Tensor:
        for dimension in self.split:
            torch.distributed.all_reduce(
                values, getattr(torch.distributed.ReduceOp, operation), group=self.mesh.get_group(dimension)
            )
        return values


WHOLE = Sharding()


def sharding_of(tensor: Tensor) -> Sharding:
    """How a tensor is spread over processes."""
    sharded = _as_sharded(tensor)
    if sharded is None:
        return WHOLE
    split = (i for i, placement in enumerate(sharded.placements) if not placement.is_replicate())
    return Sharding(sharded.device_mesh, tuple(split))


def local_shard(tensor: Tensor) -> Tensor:
    """The entries that this process holds, sharing memory."""
    sharded = _as_sharded(tensor)
    return tensor if sharded is None else sharded.to_local()


def _as_sharded(tensor: Tensor) -> Any:
    if type(tensor) in (Tensor, Parameter):
        return None
    # importing DTensor takes a second; a tensor can only be one if it has been imported
    distributed = sys.modules.get("torch.distributed.tensor")
    return tensor if distributed is not None and isinstance(tensor, distributed.DTensor) else None


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every entry of every tensor is finite, on every process that holds a part of one."""
    return largest_entry(tensors) < math.inf


def is_finite(tensor: Tensor) -> bool:
    """Whether every entry of a tensor (of the part that this process holds) is finite."""
    return bool(torch.isfinite(local_shard(tensor)).all())


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


def _largest_on(device: torch.device, tensors: list[Tensor]) -> float:
    if device.type == "cpu":
        # In small models the calls take the time: one call for all small tensors, and one for each of the others. Last
        # to first: the step goes from first to last, and finds the tensors read last in the cache.
        small = [x for x in tensors if 0 < x.numel() <= LARGEST_JOINED]
        joined = [_flatten_dense_tensors(small)] if small else []  # type: ignore[no-untyped-call]
        large = [x for x in reversed(tensors) if x.numel() > LARGEST_JOINED]
        extremes = [x for tensor in [*joined, *large] for x in torch.aminmax(tensor)]
    else:
        extremes = largest_entries(tensors)
    largest = float(torch.stack(extremes).abs().max()) if extremes else 0.0
    return math.inf if math.isnan(largest) else largest


def largest_entries(tensors: list[Tensor]) -> list[Tensor]:
    """max|x| of each tensor as a 0-d tensor; 0 of an empty one."""
    if tensors[0].device.type != "cpu" and all(x.numel() for x in tensors):
        return list(torch._foreach_norm(tensors, float("inf")))
    # on the CPU vector_norm(inf) runs at a twentieth of the memory bandwidth, aminmax at the full one
    return [_largest_entry(x) for x in tensors]


def _largest_entry(x: Tensor) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros(())
    low, high = torch.aminmax(x)
    return torch.maximum(high, -low)
