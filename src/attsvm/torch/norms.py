"""ℓq norms of gradients, without overflow: ‖g‖_q = m·(Σ(|g|/m)^q)^(1/q) for any m > 0.

‖g‖_q with q = 11 (p = 1.1) of gradients near 1e-4 sums numbers near 1e-44, which underflow in float32. So each norm is
kept as the pair of a divisor m and the sum, with m near max|g|, so that the sum is near 1 or larger. Where a step is
compiled, one pass over a large tensor finds sum and largest entry: its divisor is a power of two near the largest entry
of the step before. Where the largest entry is far from it, because the gradient has changed, the pass is made again.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attsvm._utils.powers import power
from attsvm.torch.fused import constant_numbers
from attsvm.torch.sharding import WHOLE, largest_entries, sharding_of
from attsvm.torch.steps import POWERS, TensorBatch

ROWS = 4
"""A tensor is read in so many parts side by side: a sum over one part waits for the addition before."""

SHORTEST_ROW = 1 << 13
"""The compiler adds shorter rows in another way, which would be compiled separately."""

LARGEST_EXPONENT = 24.0
"""Of q: the sums of higher powers leave the range of float32."""

RANGE, SMALL = 96.0, 48.0
"""The largest entry is between 2^(−SMALL/q) and 2^(RANGE/q) times m: neither do sums overflow, nor is anything lost."""


class PowerSum(NamedTuple):
    """The divisor m, Σ(|g|/m)^q, and an exponent for the next step: 2^exponent is near the largest entry."""

    divisor: float
    total: float
    exponent: int


def power_sums(batch: TensorBatch, parts: list[Tensor], q: float) -> tuple[Tensor, Tensor]:
    """Divisors m and sums Σ(|x|/m)^q of the tensors of a batch; m is 1 and the sum 0 for a tensor of zeros."""
    largest = batch.sharding.largest(torch.stack(largest_entries(batch.apart(parts))))
    # a tensor of zeros: 0/1 gives no step, 0/0 would give NaN
    largest = torch.where(largest > 0, largest, 1.0)
    divisors = batch.per_part(largest)
    powers = [power((x / divisor).abs(), q, POWERS) for x, divisor in zip(parts, divisors, strict=True)]
    return largest, batch.sharding.total(torch.stack([x.sum() for x in batch.apart(powers)]))


def divisor_and_sum(x: Tensor, q: float) -> tuple[float, float]:
    """That pair of one tensor."""
    divisor = float(largest_entries([x])[0]) or 1.0
    return divisor, float(power((x / divisor).abs(), q, POWERS).sum())


def over_all_tensors(pairs: list[tuple[Tensor, Tensor]], q: float) -> list[tuple[Tensor, Tensor]]:
    """The pair (m, s) of all tensors together, repeated for each tensor.

    ``pairs`` holds two vectors for each batch, possibly on several devices and of several dtypes; so does the result.
    """
    home = pairs[0][0].device
    divisors, sums = (torch.cat([x.to(home, torch.float64) for x in column]) for column in zip(*pairs, strict=True))
    # a tensor of zeros has divisor 1 and must not count as largest
    top = torch.where(sums > 0, divisors, 0.0).max()
    top = torch.where(top > 0, top, 1.0)
    total = (sums * (divisors / top).clamp(max=1.0) ** q).sum()
    return [(top.to(m).expand_as(m), total.to(s).expand_as(s)) for m, s in pairs]


def fits_one_pass(gradient: Tensor, q: float) -> bool:
    """Whether the norm of a gradient can be computed in one pass."""
    return (
        gradient.dtype == torch.float32
        and gradient.device.type == "cpu"
        and sharding_of(gradient) is WHOLE
        and gradient.numel() % ROWS == 0
        and gradient.numel() >= ROWS * SHORTEST_ROW
        and gradient.is_contiguous()
        and q <= LARGEST_EXPONENT
    )


def power_sum(gradient: Tensor, guess: int | None, q: float) -> PowerSum | None:
    """The power sum of a tensor that fits, in one pass; None if it is zero, or an entry is not finite.

    ``guess``: the exponent of a power of two near the largest entry, if it is known.
    """
    found = None if guess is None else _measured(gradient, guess, q)
    if found is None:
        (largest,) = largest_entries([gradient])
        if 0 < largest < math.inf:
            found = _measured(gradient, math.frexp(largest)[1], q)
    return found


def _measured(gradient: Tensor, exponent: int, q: float) -> PowerSum | None:
    """The sum with the divisor 2^exponent, which changes no digit; None if it cannot be computed."""
    if not -120 < exponent < 120:  # the reciprocal must be finite, too
        return None
    sums = _kernel(q, torch.get_num_threads())
    top, total = sums(gradient.view(ROWS, -1), torch.tensor(2.0**-exponent)).tolist()
    if not 2.0 ** (-SMALL / q) <= top <= 2.0 ** (RANGE / q):  # NaN is not, either
        return None
    return PowerSum(2.0**exponent, total, exponent + math.frexp(top)[1])


# the number of threads is an argument because the compiler writes it into the loops
@cache
def _kernel(q: float, threads: int) -> Any:
    def sums(tensor: Tensor, factor: Tensor) -> Tensor:
        a, b, c, d = ((tensor[row] * factor).abs() for row in range(ROWS))
        top = torch.maximum(torch.maximum(a, b), torch.maximum(c, d)).amax()
        # with cube roots these sums take minutes to compile
        powers = [power(part, q, POWERS) for part in (a, b, c, d)]
        return torch.stack([top, ((powers[0] + powers[1]) + (powers[2] + powers[3])).sum()])

    compiler: Any = torch.compile
    made = compiler(sums, fullgraph=True, isolate_recompiles=True, options={"split_reductions": False})
    typical = torch.zeros(ROWS, SHORTEST_ROW)
    torch._dynamo.mark_dynamic(typical, 1)
    with constant_numbers():
        made(typical, torch.ones(()))
    return made
