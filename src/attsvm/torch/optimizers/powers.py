"""sign(x)|x|^e, by multiplications and roots instead of `pow` wherever possible.

A `pow` costs tens of multiplications, and the common exponents do not need it: 1/(p−1) is 10 at p = 1.1, 2 at 1.5, 4/3
at 1.75, 1 at 2, 1/2 at 3. The same code is used for single tensors (inside a compiled kernel) and for lists
(`torch._foreach_*`). Compare :mod:`attsvm.optimizers.sizes` for JAX arrays.

The mirror variable of a parameter is one of them: z = ∇ψ(w) = sign(w)|w|^(p−1).
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

LARGEST_CHEAP_EXPONENT = 32
TWELFTHS_OF_QUARTERS, TWELFTHS_OF_THIRDS = 3, 4


class Arithmetic(NamedTuple):
    """The few operations that a power needs, for one kind of operand."""

    mul: Callable[[Any, Any], Any]
    abs: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    pow: Callable[[Any, float], Any]
    with_sign_of: Callable[[Any, Any], Any]
    inverse_cube_root: Callable[[Any], Any] | None = None  # None if `pow` takes less time


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


def inverse_cube_root(x: torch.Tensor) -> torch.Tensor:
    """x^(−1/3) for normal x > 0 in float32 or float64, by multiplications alone; finite for smaller x ≥ 0.

    Six times as fast as `pow` in a compiled kernel, and more accurate.
    """
    integers, offset, iterations = _GUESSES[x.dtype]
    bits = offset - x.view(integers).to(x.dtype) / 3.0
    root = bits.to(integers).view(x.dtype)
    for _ in range(iterations):
        # (1 − e)^(−1/3) = 1 + e/3 + 2e²/9 + …
        error = 1.0 - x * root * root * root
        root = root + root * (error * (1.0 / 3.0 + error * (2.0 / 9.0)))
    return root


TENSOR = Arithmetic(torch.mul, torch.abs, torch.sqrt, torch.pow, torch.copysign, inverse_cube_root)
TENSOR_WITH_POW = TENSOR._replace(inverse_cube_root=None)
LIST = Arithmetic(
    torch._foreach_mul,
    torch._foreach_abs,
    torch._foreach_sqrt,
    torch._foreach_pow,
    lambda magnitudes, signs: torch._foreach_mul(magnitudes, torch._foreach_sign(signs)),
)


def parts_of(exponent: float, arithmetic: Arithmetic = TENSOR) -> tuple[int, int] | None:
    """The whole part of an exponent and its rest in twelfths, if it is cheap; None if it needs `pow`.

    Cheap are multiples of a quarter and, with a cube root, of a third that are not too large. 1/(p−1) of a decimal p is
    off by a few ulps (1/(1.1 − 1) = 9.999999999999991), so the exponent is rounded if the relative difference is at
    most 1e-12.
    """
    twelfths = round(12 * exponent)
    near = abs(12 * exponent - twelfths) <= 1e-12 * twelfths
    whole, rest = twelfths // 12, twelfths % 12  # torch.compile does not trace divmod
    rooted = rest % TWELFTHS_OF_QUARTERS == 0 or (
        rest % TWELFTHS_OF_THIRDS == 0 and arithmetic.inverse_cube_root is not None
    )
    return (whole, rest) if near and rooted and 0 < twelfths <= 12 * LARGEST_CHEAP_EXPONENT else None


def signed_power(x: Any, exponent: float, arithmetic: Arithmetic = TENSOR) -> Any:
    """sign(x)|x|^exponent, elementwise.

    ``exponent``: positive.

    Returns new values, except that exponent 1 returns ``x`` itself.
    """
    parts = parts_of(exponent, arithmetic)
    if parts is None:
        return arithmetic.with_sign_of(arithmetic.pow(arithmetic.abs(x), exponent), x)
    whole, rest = parts
    if whole == 0:
        return arithmetic.with_sign_of(_fractional_power(arithmetic.abs(x), rest, arithmetic), x)
    # an even power loses the sign, so one factor x stays |x|
    signed = _whole_power(x, whole, arithmetic) if whole % 2 else _even_signed_power(x, whole, arithmetic)
    return arithmetic.mul(_fractional_power(arithmetic.abs(x), rest, arithmetic), signed) if rest else signed


def power(x: Any, exponent: float, arithmetic: Arithmetic = TENSOR) -> Any:
    """x^exponent for x ≥ 0, elementwise; as :func:`signed_power`, without the sign."""
    parts = parts_of(exponent, arithmetic)
    if parts is None:
        return arithmetic.pow(x, exponent)
    whole, rest = parts
    if rest == 0:
        return _whole_power(x, whole, arithmetic)
    root = _fractional_power(x, rest, arithmetic)
    return root if whole == 0 else arithmetic.mul(root, _whole_power(x, whole, arithmetic))


def _even_signed_power(x: Any, whole: int, arithmetic: Arithmetic) -> Any:
    signed_square = arithmetic.mul(x, arithmetic.abs(x))
    if whole == 2:
        return signed_square
    return arithmetic.mul(_whole_power(x, whole - 2, arithmetic), signed_square)


def _fractional_power(x: Any, twelfths: int, arithmetic: Arithmetic) -> Any:
    if twelfths % TWELFTHS_OF_QUARTERS:
        return _third_power(x, twelfths // TWELFTHS_OF_THIRDS, arithmetic)
    half = arithmetic.sqrt(x)
    if twelfths == 6:
        return half
    quarter = arithmetic.sqrt(half)
    return quarter if twelfths == 3 else arithmetic.mul(half, quarter)


def _third_power(x: Any, thirds: int, arithmetic: Arithmetic) -> Any:
    assert arithmetic.inverse_cube_root is not None
    root = arithmetic.inverse_cube_root(x)
    two_thirds = arithmetic.mul(x, root)
    return two_thirds if thirds == 2 else arithmetic.mul(two_thirds, root)


def _whole_power(x: Any, whole: int, arithmetic: Arithmetic) -> Any:
    product, square = None, x
    while True:
        if whole % 2:
            product = square if product is None else arithmetic.mul(product, square)
        whole //= 2
        if whole == 0:
            return product
        square = arithmetic.mul(square, square)


@cache
def mirror_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the mirror variable and the momentum of weights of a dtype: float32 or wider."""
    return torch.promote_types(dtype, torch.float32)


def mirror_of(parameter: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """The mirror variable of a parameter, as a new tensor."""
    weights = parameter.detach().to(dtype)
    mirror: Tensor = signed_power(weights, p - 1.0)
    return mirror.clone() if mirror is weights else mirror


def adopt_changes(parameter: Tensor, mirror: Tensor, p: float) -> None:
    """Update the mirror variable of the weights that were changed between steps (by a checkpoint or a clamp).

    The other entries keep their mirror variable: recomputing it would lose it wherever the weight has underflowed.
    """
    weights = parameter.detach()
    linked = signed_power(mirror, 1.0 / (p - 1.0)).to(weights.dtype)
    limits = torch.finfo(weights.dtype)
    # compiled and eager steps round the last digits differently, and flush subnormal numbers to zero (but not those of
    # float16, which are needed; they may differ by two units in the last place)
    tolerance = 4.0 * limits.eps * weights.abs() + min(limits.tiny, 2.0**-23)
    changed = (linked - weights).abs() > tolerance
    mirror.copy_(torch.where(changed, mirror_of(parameter, p, mirror.dtype), mirror))
