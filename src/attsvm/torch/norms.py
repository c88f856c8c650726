"""ℓq norms of gradients, without overflow: ‖g‖_q = m·(Σ(|g|/m)^q)^(1/q) for any m > 0.

‖g‖_q with q = 11 (p = 1.1) of gradients near 1e-4 sums numbers near 1e-44, which underflow in float32. So each norm is
kept as the pair of a divisor m and the sum, with m near max|g|, so that the sum is near 1 or larger. Where a step is
compiled, one pass over a large tensor and its momentum finds the sum: its divisor is a power of two near the norm of
the step before. Where the sum is far from 1, because the gradient has changed, the pass is made again.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attsvm._utils.powers import power
from attsvm.torch.fused import NUM_NUMBERS, kernel
from attsvm.torch.sharding import WHOLE, largest_entries, sharding_of
from attsvm.torch.steps import POWERS, TensorBatch

ROWS = 4
"""A tensor is read in so many parts side by side: a sum over one part waits for the addition before."""

SHORTEST_ROW = 1 << 13
"""The compiler adds shorter rows in another way, which would be compiled separately."""

LARGEST_EXPONENT = 24.0
"""Of q: the sums of higher powers leave the range of float32."""

LEAST, LARGEST = 2.0**-48, 2.0**96
"""Of sums in one pass: below LEAST entries that are not small beside the largest one may have been lost."""


class Direction(NamedTuple):
    """scale·gradient + weight·buffer, which is computed where it is used."""

    gradient: Tensor
    scale: float
    buffer: Tensor | None = None
    weight: float = 0.0

    def value(self) -> Tensor:
        found = self.gradient * self.scale
        return found if self.buffer is None else found.add_(self.buffer, alpha=self.weight)


class PowerSum(NamedTuple):
    """The divisor m, Σ(|g|/m)^q, and an exponent for the next step: 2^exponent is near the norm."""

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


def fits_one_pass(direction: Direction, q: float) -> bool:
    """Whether the norm of a direction can be computed in one pass."""
    gradient, buffer = direction.gradient, direction.buffer
    return (
        gradient.dtype == torch.float32
        and gradient.device.type == "cpu"
        and sharding_of(gradient) is WHOLE
        and gradient.numel() % ROWS == 0
        and gradient.numel() >= ROWS * SHORTEST_ROW
        and gradient.is_contiguous()
        and (
            buffer is None
            or (buffer.is_contiguous() and buffer.dtype == torch.float32 and buffer.device == gradient.device)
        )
        and q <= LARGEST_EXPONENT
    )


def power_sums_in_one_pass(
    directions: Sequence[Direction], guesses: Sequence[int | None], q: float
) -> list[PowerSum | None]:
    """The power sum of each direction, which must fit; None if it is zero, or an entry is not finite.

    ``guesses``: for each the exponent of a power of two near its norm, or None if it is not known.
    """
    found = _measured(directions, guesses, q)
    again = [i for i, one in enumerate(found) if one is None]
    tops = {i: float(largest_entries([directions[i].value()])[0]) for i in again}
    again = [i for i in again if 0.0 < tops[i] < math.inf]
    second = _measured([directions[i] for i in again], [math.frexp(tops[i])[1] for i in again], q)
    for i, one in zip(again, second, strict=True):
        found[i] = one
    return found


def _measured(directions: Sequence[Direction], exponents: Sequence[int | None], q: float) -> list[PowerSum | None]:
    """The sums with the divisors 2^exponent, which change no digit; None if it cannot be computed."""
    found: list[PowerSum | None] = [None] * len(directions)
    # the reciprocal must be finite, too
    fitting = [(i, e) for i, e in enumerate(exponents) if e is not None and -120 < e < 120]
    if not fitting:
        return found
    rows = [[directions[i].scale * 2.0**-e, directions[i].weight * 2.0**-e] for i, e in fitting]
    numbers = directions[0].gradient.new_tensor([[*row, *_UNUSED] for row in rows]).unbind()
    threads, results = torch.get_num_threads(), []
    for (i, _), factors in zip(fitting, numbers, strict=True):
        one = directions[i]
        dtypes = torch.float32, None if one.buffer is None else torch.float32
        sums = kernel(_sums, (q,), dtypes, one.gradient.device, threads)
        results.append(sums(one.gradient.view(-1), None if one.buffer is None else one.buffer.view(-1), factors))
    for (i, e), total in zip(fitting, torch.stack(results).tolist(), strict=True):
        if LEAST <= total <= LARGEST:  # NaN is not, either
            found[i] = PowerSum(2.0**e, total, e + round(math.log2(total) / q))
    return found


_UNUSED = [0.0] * (NUM_NUMBERS - 2)


def _sums(q: float, gradient: Tensor, buffer: Tensor | None, numbers: Tensor) -> Tensor:
    rows = [row * numbers[0] for row in gradient.view(ROWS, -1)]
    if buffer is not None:
        rows = [x + row * numbers[1] for x, row in zip(rows, buffer.view(ROWS, -1), strict=True)]
    # with cube roots these sums take minutes to compile
    a, b, c, d = (power(x.abs(), q, POWERS) for x in rows)
    total: Tensor = ((a + b) + (c + d)).sum()
    return total
