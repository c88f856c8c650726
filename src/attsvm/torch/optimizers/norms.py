"""ℓq norms of many tensors at once, without overflow and without synchronizing with the device.

‖g‖_q with q = 11 (p = 1.1) of gradients near 1e-4 sums numbers near 1e-44, which underflow in float32. So each norm is
kept as a pair (m, s) with m = max|g| and s = Σ(|g|/m)^q between 1 and the number of entries: ‖g‖_q = m·s^(1/q).

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
from torch.nn import Parameter

from attsvm.torch.optimizers.powers import LIST, power


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


def largest_entries(tensors: list[Tensor]) -> list[Tensor]:
    """max|x| of each tensor as a 0-d tensor; 0 of an empty one."""
    if tensors[0].device.type != "cpu" and all(x.numel() for x in tensors):
        return list(torch._foreach_norm(tensors, float("inf")))
    # on the CPU vector_norm(inf) runs at a twentieth of the memory bandwidth, aminmax at the full one
    return [_largest_entry(x) for x in tensors]


def power_sums(tensors: list[Tensor], largest: list[Tensor], q: float) -> list[Tensor]:
    """Σ(|x|/m)^q of each tensor as a 0-d tensor, m > 0 its divisor."""
    scaled = torch._foreach_abs(torch._foreach_div(tensors, largest))
    return [x.sum() for x in power(scaled, q, LIST)]


def _largest_entry(x: Tensor) -> Tensor:
    if x.numel() == 0:
        return x.new_zeros(())
    low, high = torch.aminmax(x)
    return torch.maximum(high, -low)


def joined(largest: list[Tensor], sums: list[Tensor], q: float) -> tuple[list[Tensor], list[Tensor]]:
    """The pair (m, s) of all tensors together, repeated for each tensor.

    ``largest`` and ``sums`` hold one vector per batch, possibly on several devices and of several dtypes; so do the
    results.
    """
    home = largest[0].device
    all_largest = torch.cat([x.to(home, torch.float64) for x in largest])
    all_sums = torch.cat([x.to(home, torch.float64) for x in sums])
    # a tensor of zeros has divisor 1 and must not count as largest
    top = torch.where(all_sums > 0, all_largest, 0.0).max()
    top = torch.where(top > 0, top, 1.0)
    total = (all_sums * (all_largest / top).clamp(max=1.0) ** q).sum()
    return [top.to(x).expand_as(x) for x in largest], [total.to(x).expand_as(x) for x in sums]


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
