"""ℓq norms of many tensors at once, without overflow and without synchronizing with the device.

‖g‖_q with q = 11 (p = 1.1) of gradients near 1e-4 sums numbers near 1e-44, which underflow in float32. So each norm is
kept as a pair (m, s) with m = max|g| and s = Σ(|g|/m)^q between 1 and the number of entries: ‖g‖_q = m·s^(1/q).
"""

import torch
from torch import Tensor

from attsvm.torch.optimizers.powers import LIST, power


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
