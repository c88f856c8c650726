"""Sums of products over named axes, with the trials along one trailing axis.

Inside the engine every array ends with an axis of trials: tokens are (n, T, d, B), weights (d_k, d_q, B), and B = 1
where all trials share an array. The trials are then contiguous in memory, so that elementwise code runs over them in
vector registers, and one code path serves a single trial, a thousand and a GPU.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import chain, product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array

# Above these sizes a matrix product is faster. Below them the products are written term by term, and XLA compiles them
# into one vectorised loop (each term adds an instruction, which limits the length of the sum).
LONGEST_WRITTEN_OUT = 64
LARGEST_WRITTEN_OUT = 32_768


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def contract(subscripts: str, a: Array, b: Array) -> Array:
    """Einstein summation of two arrays whose trailing axis, which ``subscripts`` leaves out, holds the trials.

    ``subscripts``: as for ``einsum`` with two operands, e.g. ``"ntk,nqk->nqt"``. No letter occurs twice in an operand,
    and none occurs in only one of them unless it is in the output. The trailing axis has length 1 where the trials
    share an array. The derivative is again a contraction of this kind.
    """
    return contractions((subscripts, a, b))


def _forward(subscripts: str, a: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
    return contract(subscripts, a, b), (a, b)


def _backward(subscripts: str, operands: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    a, b = operands
    left, right, out, _, _ = _parse(subscripts, a, b)
    of_a = contract(f"{out},{right}->{left}", cotangent, b)
    of_b = contract(f"{out},{left}->{right}", cotangent, a)
    return _shared(of_a, a), _shared(of_b, b)


contract.defvjp(_forward, _backward)


def contractions(*products: tuple[str, Array, Array], plus: Array | None = None) -> Array:
    """The sum of results of :func:`contract` that have one shape, and of ``plus``; it has no derivative.

    It is computed in one loop, if no contraction is long. Sums of settled arrays would be loops of their own, and XLA
    compiles a loop that only adds arrays into slow code.
    """
    length = max(x.shape[-1] for _, a, b in products for x in (a, b))
    terms = [_terms(*one, length) for one in products]
    settled = not any(is_long for is_long, _ in terms)
    total_of = reduce(jnp.add, chain(*(each for _, each in terms), [] if plus is None else [plus]))
    return settle(total_of) if settled else total_of


def _terms(subscripts: str, a: Array, b: Array, length: int) -> tuple[bool, Iterable[Array]]:
    """Whether a contraction is long, and the terms of its sum: for a long one, the whole."""
    left, right, out, summed, sizes = _parse(subscripts, a, b)
    num_terms = math.prod(sizes[letter] for letter in summed)
    num_products = num_terms * math.prod(sizes[letter] for letter in out)
    if num_terms > LONGEST_WRITTEN_OUT or num_products > LARGEST_WRITTEN_OUT:
        if a.shape[-1] == b.shape[-1] == 1:
            return True, [jnp.einsum(subscripts, a[..., 0], b[..., 0])[..., None]]
        return True, [jnp.einsum(f"{left}...,{right}...->{out}...", a, b)]

    shape = *(sizes[letter] for letter in out), length

    def term(at: Mapping[str, int]) -> Array:
        return jax.lax.mul(_align(a, left, out, shape, at), _align(b, right, out, shape, at))

    places = product(*(range(sizes[letter]) for letter in summed))
    return False, (term(dict(zip(summed, place, strict=True))) for place in places)


def added(x: Array, y: Array) -> Array:
    """The sum of two arrays of one shape, computed once.

    XLA compiles a loop over whole arrays without a constant into slow code, which divides indices; here it has one.
    """
    return settle(jnp.where(y == 0.0, x, x + y))


def total(x: Array, axis: int) -> Array:
    """Sum over one axis (not the trials'), kept with length 1."""
    if x.shape[axis] > LONGEST_WRITTEN_OUT:
        return jnp.sum(x, axis=axis, keepdims=True)
    return reduce(jax.lax.add, _entries(x, axis, keepdims=True))


def lengths(x: Array, axis: int) -> Array:
    """ℓ2 lengths along one axis, kept with length 1, of entries up to about 1: no square of a small line underflows."""
    lift = 2.0 ** (jnp.finfo(x.dtype).maxexp * 15 // 32)
    squares, of_lifted = total(x * x, axis), total((x * lift) ** 2, axis)
    return jnp.where(squares * lift > 1.0, jnp.sqrt(squares), jnp.sqrt(of_lifted) / lift)


def over_entries(operation: Callable[[Array, Array], Array], x: Array) -> Array:
    """Reduce all axes but the trials' by a sum, a maximum, a minimum or a logical and: (..., B) to (B,)."""
    for length in x.shape[:-1]:
        if length > LONGEST_WRITTEN_OUT:
            x = settle(_REDUCTIONS[operation].whole(x, axis=0))
        else:
            # entry by entry, the loop over the trials stays the innermost one, unlike in XLA's own reduction; one axis
            # fused with the next would compute entries again
            x = settle(reduce(_REDUCTIONS[operation].of_two, _entries(x, 0)))
    return x


class _Reduction(NamedTuple):
    whole: Callable[..., Array]
    of_two: Callable[[Array, Array], Array]


# the operations of jax.lax are traced in a third of the time of those of jax.numpy
_REDUCTIONS: dict[Any, _Reduction] = {
    jnp.add: _Reduction(jnp.sum, jax.lax.add),
    jnp.maximum: _Reduction(jnp.max, jax.lax.max),
    jnp.minimum: _Reduction(jnp.min, jax.lax.min),
    jnp.logical_and: _Reduction(jnp.all, jax.lax.bitwise_and),
}


def _entries(x: Array, axis: int, keepdims: bool = False) -> Iterator[Array]:
    """The slices of ``x`` along an axis."""
    return (jax.lax.index_in_dim(x, i, axis, keepdims) for i in range(x.shape[axis]))


def lanes(x: Array) -> Array:
    """(r, c, H, B) as (r, c, H·B); arrays of up to three axes as they are.

    XLA vectorises the last axis, which the trials of several heads leave too short. The reshape is free,
    unless XLA fuses it into a loop: then it is not vectorised. So a loop reads and writes arrays stored as lanes.
    """
    return x if x.ndim <= 3 else x.reshape(*x.shape[:2], -1)


def over_all(
    operation: Callable[[Array, Array], Array], tree: Mapping[str, Array], of: Callable[[Array], Array]
) -> Array:
    """Reduce a function of all entries of several arrays: to shape (B,)."""
    # the parameters first and then the heads, in one loop over trials
    of_lanes: dict[tuple[int, ...], Array] = {}
    for x in tree.values():
        found, kept = over_entries(operation, of(lanes(x))), x.shape[2:] if x.ndim > 3 else x.shape[-1:]
        of_lanes[kept] = operation(of_lanes[kept], found) if kept in of_lanes else found
    return reduce(operation, [over_entries(operation, x.reshape(kept)) for kept, x in of_lanes.items()])


def elementwise(operation: Callable[..., Array], *operands: Array) -> Array:
    """An elementwise operation of arrays (..., B) of one shape and of numbers of each trial (B,), computed in lanes."""
    whole = max(map(jnp.shape, operands), key=len)
    if len(whole) <= 3:
        return operation(*operands)

    def in_lanes(x: Array) -> Array:
        return lanes(x) if jnp.ndim(x) > 1 else settle(jnp.broadcast_to(x, whole[2:]).reshape(-1))

    return operation(*map(in_lanes, operands)).reshape(whole)


def quotient(x: Array, divisor: Array) -> Array:
    """An array (..., B) divided by a number of each trial (B,).

    XLA takes the reciprocals of divisors that many entries share; here it does so once, and not for each head.
    """
    return elementwise(jnp.multiply, x, 1.0 / divisor)


def settle(x: Array) -> Array:
    """Compute ``x`` once: a barrier that keeps XLA from repeating the work of ``x`` in every consumer."""
    settled: Array = jax.lax.optimization_barrier(x)
    return settled


def _parse(subscripts: str, a: Array, b: Array) -> tuple[str, str, str, list[str], dict[str, int]]:
    operands, out = subscripts.split("->")
    left, right = operands.split(",")
    sizes = dict(zip(left + right, a.shape[:-1] + b.shape[:-1], strict=True))
    return left, right, out, [letter for letter in sizes if letter not in out], sizes


def _align(x: Array, letters: str, out: str, shape: tuple[int, ...], at: Mapping[str, int]) -> Array:
    """``x`` at one place of the summed letters, with the axes of ``out`` and the trials', repeated to ``shape``."""
    first = [at.get(letter, 0) for letter in letters]
    last = [at[letter] + 1 if letter in at else size for letter, size in zip(letters, x.shape[:-1], strict=True)]
    entry = jax.lax.slice(x, (*first, 0), (*last, x.shape[-1]))
    entry = jax.lax.squeeze(entry, [i for i, letter in enumerate(letters) if letter in at])
    kept = [letter for letter in letters if letter not in at]
    order = sorted(range(len(kept)), key=lambda i: out.index(kept[i]))
    if order != list(range(len(kept))):
        entry = jax.lax.transpose(entry, (*order, len(kept)))
    axes = *(i for i, letter in enumerate(out) if letter in kept), len(out)
    return jax.lax.broadcast_in_dim(entry, shape, axes)


def _shared(cotangent: Array, primal: Array) -> Array:
    """The gradient of an array that all trials share: the sum over the trials."""
    if primal.shape[-1] == 1 and cotangent.shape[-1] > 1:
        return jnp.sum(cotangent, axis=-1, keepdims=True)
    return cotangent
