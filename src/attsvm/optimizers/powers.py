"""Fast powers of non-negative numbers, by roots and products instead of pow where possible."""

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array


def power(x: Array, exponent: float) -> Array:
    """x^exponent for x ≥ 0 and a fixed exponent > 0.

    Whole, half and third exponents are products and roots, an order of magnitude faster than the general way (ℓ1.75
    mirror descent needs 4/3 and 7/3). Zero stays zero.
    """
    for root, parts in ((None, 1), (jnp.sqrt, 2), (cube_root, 3)):
        whole = round(exponent * parts)
        if exponent * parts == whole and whole <= _LONGEST * parts:
            if root is None or whole % parts == 0:
                return _whole_power(x, round(exponent))
            quotient, rest = divmod(whole, parts)
            fraction = _whole_power(root(x), rest)
            return fraction * _whole_power(x, quotient) if quotient else fraction
    return jnp.where(x > 0, jnp.exp(exponent * jnp.log(jnp.where(x > 0, x, 1.0))), 0.0)


def signed_power(x: Array, exponent: float) -> Array:
    """Compute sign(x)|x|^exponent of each entry."""
    return x if exponent == 1 else jnp.sign(x) * power(jnp.abs(x), exponent)


# more products than this have larger rounding errors than the exponential of a logarithm
_LONGEST = 32


def _whole_power(x: Array, exponent: int) -> Array:
    if exponent == 0:
        return jnp.ones_like(x)
    half = _whole_power(x, exponent // 2) if exponent > 1 else None
    square = x if half is None else half * half
    return square * x if exponent > 1 and exponent % 2 else square


def cube_root(x: Array) -> Array:
    """x^(1/3) for normal x ≥ 0, to one unit in the last place; subnormal numbers count as zero.

    It is computed from y = x^(-1/3), whose iteration needs no division. Dividing the bits by three gives a first guess
    with |1 − xy³| below 0.103; the series of (1 − e)^(-1/3) then corrects it twice.
    """
    if x.dtype != jnp.float64:
        return jnp.cbrt(x)
    bits = jax.lax.bitcast_convert_type(x, jnp.int64)
    # only the upper half of the bits is guessed from: 32-bit integers convert to floats in vector registers
    upper = (bits >> 32).astype(jnp.int32).astype(x.dtype)
    guess = (_BIAS - upper * (1 / 3)).astype(jnp.int32)
    y = jax.lax.bitcast_convert_type(guess.astype(jnp.int64) << 32, x.dtype)
    e = 1.0 - x * y * y * y
    y = y * (1.0 + e * (1 / 3 + e * (2 / 9 + e * (14 / 81 + e * (35 / 243)))))
    e = 1.0 - x * y * y * y
    y = y * (1.0 + e * (1 / 3 + e * (2 / 9)))
    root = x * (y * y)
    # a Newton step from the root, which has the rounding errors of y
    root = root - (root * root * root - x) * (y * y * (1 / 3))
    return jnp.where(x >= float(np.finfo(x.dtype).tiny), root, 0.0)


# four thirds of the exponent's offset 1023, less what makes the guess's errors even: (1364 - 0.068) 2^20
_BIAS = 1430186361.0
