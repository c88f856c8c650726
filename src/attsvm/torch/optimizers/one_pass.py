"""The ℓq norm of a float32 gradient in one pass over memory, which finds infinities and NaN, too.

‖g‖_q = s·(Σ(|g|/s)^q)^(1/q) for any s > 0. A pass before it could give the largest entry as s. Here s is a power of two
near the largest entry of the step before, so that the division is exact and the result the same. The pass computes the
largest entry, too: where it is far from s, because the gradient has changed, the pass is made again with that entry.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attsvm.torch.optimizers.compiled import SLOTS
from attsvm.torch.optimizers.norms import largest_entries
from attsvm.torch.optimizers.powers import TENSOR_WITH_POW, power

ROWS = 4
"""A tensor is read in so many parts side by side: a sum over one part waits for the addition before."""

SHORTEST_ROW = 1 << 13
"""The compiler adds shorter rows in another way, which would be compiled separately."""

LARGEST_EXPONENT = 24.0
"""Of q: the sums of higher powers leave the range of float32."""

RANGE, SMALL = 96.0, 48.0
"""The largest entry is between 2^(−SMALL/q) and 2^(RANGE/q) times s: neither do sums overflow, nor is anything lost."""


class PowerSum(NamedTuple):
    """The divisor s, Σ(|g|/s)^q, and an exponent for the next step: 2^exponent is near the largest entry."""

    divisor: float
    total: float
    exponent: int


def fits(gradient: Tensor, q: float) -> bool:
    """Whether the norm of a gradient can be computed in one pass."""
    return (
        gradient.dtype == torch.float32
        and gradient.device.type == "cpu"
        and gradient.numel() % ROWS == 0
        and gradient.numel() >= ROWS * SHORTEST_ROW
        and gradient.is_contiguous()
        and q <= LARGEST_EXPONENT
    )


def power_sums(tensors: Sequence[Tensor], guesses: Sequence[int | None], q: float) -> list[PowerSum | None]:
    """The power sum of each tensor; None for a tensor of zeros, or with an entry that is not finite.

    ``guesses``: the exponent of a power of two near the largest entry, if it is known.
    """
    found: list[PowerSum | None] = [None] * len(tensors)
    left = [i for i, guess in enumerate(guesses) if guess is not None]
    _measure(tensors, {i: int(guesses[i] or 0) for i in left}, q, found)
    again = [i for i, one in enumerate(found) if one is None]
    largest = torch.stack(largest_entries([tensors[i] for i in again])).tolist() if again else []
    exact = {i: math.frexp(top)[1] for i, top in zip(again, largest, strict=True) if 0 < top < math.inf}
    _measure(tensors, exact, q, found)
    return found


def _measure(tensors: Sequence[Tensor], exponents: dict[int, int], q: float, found: list[PowerSum | None]) -> None:
    """Set what can be computed with divisors 2^exponent."""
    # the reciprocal must be finite, too
    usable = [i for i, exponent in exponents.items() if -120 < exponent < 120]
    if not usable:
        return
    function, spare = _kernel(q, torch.get_num_threads())
    for start in range(0, len(usable), SLOTS):
        chosen = usable[start : start + SLOTS]
        rows = [tensors[i].view(ROWS, -1) for i in chosen]
        factors = [2.0 ** -exponents[i] for i in chosen] + [1.0] * (SLOTS - len(chosen))
        tops, sums = function(rows + spare[len(rows) :], torch.tensor(factors))
        for i, top, total in zip(chosen, tops.tolist(), sums.tolist(), strict=False):
            if 2.0 ** (-SMALL / q) <= top <= 2.0 ** (RANGE / q):  # False for NaN
                found[i] = PowerSum(2.0 ** exponents[i], total, exponents[i] + math.frexp(top)[1])


# the number of threads is an argument because the compiler writes it into the loops
@cache
def _kernel(q: float, threads: int) -> tuple[Any, list[Tensor]]:
    def sums(tensors: list[Tensor], factors: Tensor) -> tuple[Tensor, Tensor]:
        tops, totals = [], []
        for i in range(SLOTS):
            a, b, c, d = ((tensors[i][row] * factors[i]).abs() for row in range(ROWS))
            tops.append(torch.maximum(torch.maximum(a, b), torch.maximum(c, d)).amax())
            powers = [power(part, q, TENSOR_WITH_POW) for part in (a, b, c, d)]
            totals.append(((powers[0] + powers[1]) + (powers[2] + powers[3])).sum())
        return torch.stack(tops), torch.stack(totals)

    compiler: Any = torch.compile
    options = {"split_reductions": False}
    function = compiler(sums, dynamic=True, fullgraph=True, isolate_recompiles=True, options=options)
    # different lengths, because equal ones would be assumed to be always equal
    spare = [torch.zeros(ROWS, SHORTEST_ROW + i) for i in range(SLOTS)]
    function(spare, torch.ones(SLOTS))
    return function, spare
