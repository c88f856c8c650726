"""sign(x)|x|^e, by multiplications and square roots instead of `pow` wherever possible.

A `pow` costs tens of multiplications, and the common exponents do not need it: 1/(p−1) is 10 at p = 1.1, 2 at 1.5, 1 at
2, 1/2 at 3. The same code is used for single tensors (inside a compiled kernel) and for lists (`torch._foreach_*`).
Compare :mod:`attsvm.optimizers.powers` for JAX arrays, where halves and thirds are the common exponents.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

LARGEST_CHEAP_EXPONENT = 32


class Arithmetic(NamedTuple):
    """The few operations that a power needs, for one kind of operand."""

    mul: Callable[[Any, Any], Any]
    abs: Callable[[Any], Any]
    sqrt: Callable[[Any], Any]
    pow: Callable[[Any, float], Any]
    with_sign_of: Callable[[Any, Any], Any]


TENSOR = Arithmetic(torch.mul, torch.abs, torch.sqrt, torch.pow, torch.copysign)
LIST = Arithmetic(
    torch._foreach_mul,
    torch._foreach_abs,
    torch._foreach_sqrt,
    torch._foreach_pow,
    lambda magnitudes, signs: torch._foreach_mul(magnitudes, torch._foreach_sign(signs)),
)


def quarters_of(exponent: float) -> int | None:
    """4·exponent if that is an integer small enough for multiplications and square roots, else None.

    1/(p−1) of a decimal p is off by a few ulps (1/(1.1 − 1) = 9.999999999999991), so the exponent is rounded to the
    nearest quarter if the relative difference is at most 1e-12.
    """
    quarters = round(4 * exponent)
    near = abs(4 * exponent - quarters) <= 1e-12 * quarters
    return quarters if near and 0 < quarters <= 4 * LARGEST_CHEAP_EXPONENT else None


def signed_power(x: Any, exponent: float, arithmetic: Arithmetic = TENSOR) -> Any:
    """sign(x)|x|^exponent, elementwise.

    Parameters
    ----------
    x : Tensor, or list of Tensor with ``arithmetic=LIST``
    exponent : float
        Positive.

    Returns
    -------
    Tensor or list of Tensor
        New values, except that exponent 1 returns ``x`` itself.
    """
    quarters = quarters_of(exponent)
    if quarters is None:
        return arithmetic.with_sign_of(arithmetic.pow(arithmetic.abs(x), exponent), x)
    whole, rest = quarters // 4, quarters % 4
    if rest == 0:
        # an even power loses the sign, so one factor x stays |x|
        return _whole_power(x, whole, arithmetic) if whole % 2 else _even_signed_power(x, whole, arithmetic)
    root = _fractional_power(arithmetic.abs(x), rest, arithmetic)
    if whole == 0:
        return arithmetic.with_sign_of(root, x)
    signed = _whole_power(x, whole, arithmetic) if whole % 2 else _even_signed_power(x, whole, arithmetic)
    return arithmetic.mul(root, signed)


def power(x: Any, exponent: float, arithmetic: Arithmetic = TENSOR) -> Any:
    """x^exponent for x ≥ 0, elementwise; as :func:`signed_power`, without the sign."""
    quarters = quarters_of(exponent)
    if quarters is None:
        return arithmetic.pow(x, exponent)
    whole, rest = quarters // 4, quarters % 4
    if rest == 0:
        return _whole_power(x, whole, arithmetic)
    root = _fractional_power(x, rest, arithmetic)
    return root if whole == 0 else arithmetic.mul(root, _whole_power(x, whole, arithmetic))


def _even_signed_power(x: Any, whole: int, arithmetic: Arithmetic) -> Any:
    signed_square = arithmetic.mul(x, arithmetic.abs(x))
    if whole == 2:
        return signed_square
    return arithmetic.mul(_whole_power(x, whole - 2, arithmetic), signed_square)


def _fractional_power(x: Any, rest: int, arithmetic: Arithmetic) -> Any:
    half = arithmetic.sqrt(x)
    if rest == 2:
        return half
    quarter = arithmetic.sqrt(half)
    return quarter if rest == 1 else arithmetic.mul(half, quarter)


def _whole_power(x: Any, whole: int, arithmetic: Arithmetic) -> Any:
    product, square = None, x
    while True:
        if whole % 2:
            product = square if product is None else arithmetic.mul(product, square)
        whole //= 2
        if whole == 0:
            return product
        square = arithmetic.mul(square, square)
