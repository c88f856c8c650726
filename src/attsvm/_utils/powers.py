"""x^e and sign(x)|x|^e, by multiplications and roots instead of `pow` wherever possible, for JAX and for PyTorch.

A `pow` costs tens of multiplications, and the common exponents do not need it: the link of ℓp mirror descent has the
exponent 1/(p−1), which is 10 at p = 1.1, 2 at 1.5, 4/3 at 1.75, 1 at 2, 1/2 at 3.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

LARGEST_CHEAP_EXPONENT = 32
"""More products than these have larger rounding errors than `pow`."""


class Functions(NamedTuple):
    """What powers need of a library besides its operators, for arrays of entries x ≥ 0."""

    sqrt: Callable[[Any], Any]
    copysign: Callable[[Any, Any], Any]
    pow: Callable[[Any, float], Any]
    cube_root: Callable[[Any], Any] | None = None
    """x^(1/3); None if `pow` takes less time."""


def power(x: Any, exponent: float, functions: Functions) -> Any:
    """x^exponent for x ≥ 0 and an exponent > 0, elementwise; exponent 1 returns ``x`` itself."""
    parts = _parts_of(exponent, functions)
    if parts is None:
        return functions.pow(x, exponent)
    whole, rest, parts_of_one = parts
    if rest == 0:
        return _whole_power(x, whole)
    fraction = _whole_power(_root(x, parts_of_one, functions), rest)
    return fraction * _whole_power(x, whole) if whole else fraction


def signed_power(x: Any, exponent: float, functions: Functions) -> Any:
    """sign(x)|x|^exponent for an exponent > 0, elementwise; exponent 1 returns ``x`` itself."""
    parts = _parts_of(exponent, functions)
    if parts is None or parts[0] == 0:
        return functions.copysign(power(abs(x), exponent, functions), x)
    whole, rest, parts_of_one = parts
    # an even power loses the sign, so one factor x stays |x|
    signed = _whole_power(x, whole) if whole % 2 else x * abs(x)
    if whole % 2 == 0 and whole > 2:
        signed = _whole_power(x, whole - 2) * signed
    return _whole_power(_root(abs(x), parts_of_one, functions), rest) * signed if rest else signed


def _parts_of(exponent: float, functions: Functions) -> tuple[int, int, int] | None:
    """Whole part, rest and the rest's denominator of an exponent whose power is cheap; None if it needs `pow`.

    1/(p−1) of a decimal p is off by a few ulps (1/(1.1 − 1) = 9.999999999999991), so the exponent is rounded if the
    relative difference is at most 1e-12.
    """
    for parts in (1, 2, 4) if functions.cube_root is None else (1, 2, 4, 3):
        count = round(parts * exponent)
        near = abs(parts * exponent - count) <= 1e-12 * count
        if near and 0 < count <= parts * LARGEST_CHEAP_EXPONENT:
            return count // parts, count % parts, parts  # torch.compile does not trace divmod
    return None


def _root(x: Any, parts: int, functions: Functions) -> Any:
    if parts == 3:
        assert functions.cube_root is not None
        return functions.cube_root(x)
    root = functions.sqrt(x)
    return root if parts == 2 else functions.sqrt(root)


def _whole_power(x: Any, whole: int) -> Any:
    product, square = None, x
    while True:
        if whole % 2:
            product = square if product is None else product * square
        whole //= 2
        if whole == 0:
            return product
        square = square * square
