"""Reductions over the processes that each hold a shard of a parameter (FSDP2's `DTensor`).

A step along b or sign(b) is elementwise, so every process makes it on its own shard. Norms and the test for finite
gradients concern the whole tensor and are completed here. FSDP1 flattens parameters into ordinary tensors that do not
show that they are shards; only elementwise steps are correct with it.
"""

import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter


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
