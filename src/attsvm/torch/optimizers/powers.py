"""The powers of PyTorch's tensors, with a cube root that compiled kernels compute faster than `pow`."""

from typing import NamedTuple

import torch
from torch import Tensor

from attsvm._utils.powers import Functions


class _Guess(NamedTuple):
    """How x^(−1/3) of a dtype is guessed from its bits, and the number of iterations after it."""

    integers: torch.dtype
    offset: float
    iterations: int


# The bits of x, read as an integer, are about 2^m (log2(x) + b), m the bits of the significand and b the offset of the
# exponent. So the bits of x^(−1/3) are about (4/3)·2^m·b less a third of those of x. The shift 0.045 balances the
# error, which is at most 3.5 %. An iteration leaves a relative error of 14/3 times its cube: 2e-4, 4e-11, 0.
_GUESSES = {
    torch.float32: _Guess(torch.int32, 4 / 3 * 2**23 * (127 - 0.045), 2),
    torch.float64: _Guess(torch.int64, 4 / 3 * 2**52 * (1023 - 0.045), 3),
}


def cube_root(x: Tensor) -> Tensor:
    """x^(1/3) for normal x ≥ 0 in float32 or float64, by multiplications alone; smaller x ≥ 0 stay finite.

    Six times as fast as `pow` in a compiled kernel, and more accurate.
    """
    integers, offset, iterations = _GUESSES[x.dtype]
    bits = offset - x.view(integers).to(x.dtype) / 3.0
    inverse = bits.to(integers).view(x.dtype)
    for _ in range(iterations):
        # (1 − e)^(−1/3) = 1 + e/3 + 2e²/9 + …
        error = 1.0 - x * inverse * inverse * inverse
        inverse = inverse + inverse * (error * (1.0 / 3.0 + error * (2.0 / 9.0)))
    return x * inverse * inverse


POWERS = Functions(torch.sqrt, torch.copysign, torch.pow)
POWERS_BY_CUBE_ROOTS = POWERS._replace(cube_root=cube_root)
