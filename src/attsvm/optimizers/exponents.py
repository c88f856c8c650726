"""Weights of any size: floats with an integer exponent for each trial, beyond the range of the floats.

The weights of a trial are 2^exponent · params. The exponent is 0 while their largest entry is inside a window of the
floats. Outside it, the largest entry of params stays at the border of the window. Products with powers of two are
exact, so the exponent changes no digit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import elementwise, settle
from attsvm.optimizers.sizes import Tree, over_all

Array = jax.Array


class Window(NamedTuple):
    """The powers of two between which the largest entry of the weights has the exponent 0; integers, shape (B or 1,).

    Above ``high`` every softmax is saturated, and below ``low`` it is uniform, both up to rounding. So the weights may
    be replaced by params, whose largest entry is at the border, wherever logits are computed.
    """

    low: Any
    high: Any


class Weights(NamedTuple):
    """2^exponent · params; the trailing axis of each array holds the trials."""

    params: Tree
    exponent: Array


def half_range(dtype: Any) -> int:
    """The exponent of two whose square is still a float."""
    return int(np.finfo(dtype).maxexp // 2 - 2)


def in_window(params: Tree, exponent: Array, window: Window) -> tuple[Weights, Array]:
    """The weights 2^exponent · params with the exponent that belongs to their size, and whether they are finite, (B,).

    Exponents follow from the true weights alone, so a run that is resumed has those of an uninterrupted one.
    """
    dtype = next(iter(params.values())).dtype
    size = largest_exponent(params)
    true = size.astype(exponent.dtype) + exponent
    new = jnp.where(size >= np.finfo(dtype).minexp, outside(true, window), 0)
    factor = settle(power_of_two(exponent - new, dtype))
    moved = {name: elementwise(jnp.multiply, x, factor) for name, x in params.items()}
    return Weights(moved, new), size < np.finfo(dtype).maxexp


def largest_exponent(params: Tree) -> Array:
    """The integer e of each trial with 2^e ≤ |x| < 2^(e+1) for its largest entry x, shape (B,).

    It is below that of all normal floats for zeros, and above it where an entry is infinite or NaN.
    """
    info = np.finfo(next(iter(params.values())).dtype)
    return (_largest_bits(params) >> (info.nmant + 32 - info.bits)) - (info.maxexp - 1)


def nearly_largest(params: Tree) -> Array:
    """The largest |x| of each trial, rounded down by less than one millionth of it, shape (B,)."""
    dtype = next(iter(params.values())).dtype
    integers, _, _ = _bits(dtype)
    return jax.lax.bitcast_convert_type(_largest_bits(params).astype(integers) << (np.finfo(dtype).bits - 32), dtype)


def widest(dtype: Any) -> Any:
    """The type, or that of half the length where JAX has no 64-bit numbers switched on."""
    return jax.dtypes.canonicalize_dtype(dtype)


def outside(size: Array, window: Window) -> Array:
    """By how much an exponent exceeds the window, below it negative."""
    return jnp.maximum(size - window.high, 0) + jnp.minimum(size - window.low, 0)


def power_of_two(exponent: Array, dtype: Any) -> Array:
    """2^exponent, exactly; 0 below the normal floats, and their largest power of two above them."""
    integers, mantissa, bias = _bits(dtype)
    field = jnp.clip(exponent + bias, 0, 2 * bias).astype(integers)
    return jax.lax.bitcast_convert_type(field << mantissa, dtype)


def _largest_bits(params: Tree) -> Array:
    """The largest of the upper 32 bits of |x|, which grow with it; unlike a maximum of floats, it ignores no NaN."""

    def upper(x: Array) -> Array:
        bits = jax.lax.bitcast_convert_type(x, _bits(x.dtype)[0])
        return (bits >> (np.finfo(x.dtype).bits - 32)).astype(jnp.int32) & 0x7FFFFFFF

    # a maximum of integers takes a fraction of the time of one of floats
    return over_all(jnp.maximum, params, upper)


def _bits(dtype: Any) -> tuple[Any, int, int]:
    """The integers as long as a float, the length of its mantissa, and the offset of its exponent."""
    info = np.finfo(dtype)
    return {32: jnp.int32, 64: jnp.int64}[info.bits], int(info.nmant), int(info.maxexp - 1)
