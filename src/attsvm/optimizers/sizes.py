"""Norms of parameters and steepest directions, over all trials at once; the trailing axis of each array holds them.

For ℓp, nuclear and spectral norms there are implementations that run over all trials in vector registers. Any other
norm is mapped over the trials.
"""

from collections.abc import Callable
from functools import reduce, singledispatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from attsvm._utils.contractions import contract, lanes, over_entries, quotient, settle, total
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, Nuclear, OnColumns, OnRows, OnSingularValues, Scaled, Spectral
from attsvm.norms.base import parts_of
from attsvm.norms.lifted import Lifted
from attsvm.optimizers.polar_exact import exact_polar_factor
from attsvm.optimizers.powers import power
from attsvm.optimizers.singular import Singular, singular_values_and_vectors

Array = jax.Array
Tree = dict[str, Array]


@singledispatch
def size_of(norm: Norm, tree: Tree) -> Array:
    """The norm of all entries of some parameters together, shape (B,). Their largest entry is about 1.

    ``norm``: a norm that is not entrywise takes one parameter. ``tree``: shape (..., B).
    """
    x = _only(norm, tree)
    own = norm.of_vectors if x.ndim <= 2 else norm
    return jnp.asarray(over_trials(_traced(own, "value", own.value))(x))


@size_of.register
def _(norm: Lp, tree: Tree) -> Array:
    if np.isinf(norm.p):
        return over_all(jnp.maximum, tree, jnp.abs)
    if norm.p == 2:
        return jnp.sqrt(sum_of_squares(tree))
    return power(over_all(jnp.add, tree, lambda x: power(jnp.abs(x), norm.p)), 1.0 / norm.p)


@size_of.register
def _(norm: Nuclear, tree: Tree) -> Array:
    return _of_singular_values(norm, jnp.add, tree)


@size_of.register
def _(norm: Spectral, tree: Tree) -> Array:
    return _of_singular_values(norm, jnp.maximum, tree)


@size_of.register
def _(norm: Lifted, tree: Tree) -> Array:
    x = _only(norm, tree)
    if x.ndim <= 2:
        return size_of(norm.of_vectors, tree)
    return size_of(norm.of, {"": _taken_apart(norm, x).sizes})


@size_of.register
def _(norm: Scaled, tree: Tree) -> Array:
    return norm.factor * size_of(norm.of, tree)


@singledispatch
def log_size_of(norm: Norm, tree: Tree) -> Array:
    """Logarithm of :func:`size_of`; +inf for zeros, so that a zero gradient divided by its norm stays zero."""
    return _log(size_of(norm, tree), 1.0)


@log_size_of.register
def _(norm: Lp, tree: Tree) -> Array:
    return _log(sum_of_squares(tree), 0.5) if norm.p == 2 else _log(size_of(norm, tree), 1.0)


def norm_of(norm: Norm, tree: Tree) -> Array:
    """The norm of parameters of any size, relative to their largest entry: powers neither overflow nor underflow."""
    largest = over_all(jnp.maximum, tree, jnp.abs)
    scale = settle(jnp.where(largest > 0, largest, 1.0))
    return scale * size_of(norm, {name: quotient(x, scale) for name, x in tree.items()})


@singledispatch
def steepest(norm: Norm, gradient: Array) -> Array:
    """The D with N(D) ≤ 1 along which a linear function grows fastest; 0 for a zero gradient.

    ``norm``: with the ℓ1 norm, ties go to the first coordinate. With the spectral norm D has the rank of the gradient:
    its singular values below rounding give no direction. ``gradient``: shape (d_k, d_q, B) or (d, B), its largest entry
    is 1 or 0 in each trial. Spectral and nuclear norms of a vector are its ℓ2 norm.
    """
    own = norm.of_vectors if gradient.ndim <= 2 else norm
    return jnp.asarray(over_trials(_traced(own, "steepest", own.steepest))(gradient))


@steepest.register
def _(norm: Lp, gradient: Array) -> Array:
    if np.isinf(norm.p):
        return jnp.sign(gradient)
    if norm.p == 1:
        shape = gradient.shape[:-1]
        index = jnp.arange(int(np.prod(shape)), dtype=jnp.int32).reshape(*shape, 1)
        size = jnp.abs(gradient)
        largest = over_entries(jnp.maximum, size)
        first = over_entries(jnp.minimum, jnp.where(size == largest, index, index.size))
        return jnp.sign(gradient) * (index == first)
    q = norm.p / (norm.p - 1.0)
    size = settle(size_of(Lp(q), {"": gradient}))
    scaled = gradient / jnp.where(size > 0, size, 1.0)
    return scaled if q == 2 else jnp.sign(scaled) * power(jnp.abs(scaled), q - 1.0)


@steepest.register
def _(norm: Nuclear, gradient: Array) -> Array:
    if gradient.ndim <= 2:
        return steepest(norm.of_vectors, gradient)
    left, values, right = _decomposed(norm, gradient)
    index = jnp.arange(len(values), dtype=jnp.int32)[:, None]
    largest = over_entries(jnp.maximum, values)
    counts = index == over_entries(jnp.minimum, jnp.where(values == largest, index, len(values)))
    return contract("rk,ck->rc", jnp.where(counts, left, 0.0), right)


@steepest.register
def _(norm: Spectral, gradient: Array) -> Array:
    if gradient.ndim <= 2:
        return steepest(norm.of_vectors, gradient)
    return exact_polar_factor(_matrix(norm, gradient))


@steepest.register
def _(norm: Lifted, gradient: Array) -> Array:
    if gradient.ndim <= 2:
        return steepest(norm.of_vectors, gradient)
    apart = _taken_apart(norm, gradient)
    largest = over_entries(jnp.maximum, apart.sizes)
    sizes = settle(apart.sizes / jnp.where(largest > 0, largest, 1.0))
    return apart.rebuilt(jnp.where(sizes > 0, steepest(norm.of, sizes), 0.0))


@steepest.register
def _(norm: Scaled, gradient: Array) -> Array:
    return steepest(norm.of, gradient) / norm.factor


class _Apart(NamedTuple):
    """Matrices (r, c, B) taken apart into sizes (k, B), and the function that puts other sizes in their place."""

    sizes: Array
    rebuilt: Callable[[Array], Array]


@singledispatch
def _taken_apart(norm: Lifted, x: Array) -> _Apart:
    raise ProblemError(f"norm: {norm.name}: JAX cannot take a matrix apart into its {norm.what}")


@_taken_apart.register
def _(norm: OnSingularValues, x: Array) -> _Apart:
    left, values, right = _decomposed(norm, x)
    eps = float(np.finfo(x.dtype).eps)
    counts = values > max(x.shape[:-1]) * eps * over_entries(jnp.maximum, values)
    return _Apart(jnp.where(counts, values, 0.0), lambda sizes: contract("rk,ck->rc", left * sizes, right))


@_taken_apart.register
def _(norm: OnRows, x: Array) -> _Apart:
    lengths = jnp.sqrt(total(x * x, axis=1)[:, 0])
    return _Apart(lengths, lambda sizes: (sizes / jnp.where(lengths > 0, lengths, 1.0))[:, None] * x)


@_taken_apart.register
def _(norm: OnColumns, x: Array) -> _Apart:
    lengths = jnp.sqrt(total(x * x, axis=0)[0])
    return _Apart(lengths, lambda sizes: (sizes / jnp.where(lengths > 0, lengths, 1.0)) * x)


def has_fast_steps(norm: Norm) -> bool:
    """Whether steepest directions in this norm are computed for all trials at once."""
    own = steepest.dispatch(type(norm)) is not steepest.dispatch(Norm)
    return own and all(map(has_fast_steps, parts_of(norm)))


def sum_of_squares(tree: Tree) -> Array:
    """Σ x² over all entries of all parameters, shape (B,)."""
    return over_all(jnp.add, tree, lambda x: x * x)


def over_all(operation: Callable[[Array, Array], Array], tree: Tree, of: Callable[[Array], Array]) -> Array:
    """Reduce a function of all entries of all parameters: to shape (B,)."""
    # the parameters first and then the heads, in one loop over trials
    of_lanes: dict[tuple[int, ...], Array] = {}
    for x in tree.values():
        found, kept = over_entries(operation, of(lanes(x))), x.shape[2:] if x.ndim > 3 else x.shape[-1:]
        of_lanes[kept] = operation(of_lanes[kept], found) if kept in of_lanes else found
    return reduce(operation, [over_entries(operation, x.reshape(kept)) for kept, x in of_lanes.items()])


def over_trials(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one trial as one of all, the trials along the trailing axis of each argument and result."""

    def of_all(*arguments: Any) -> Any:
        num_trials = jax.tree.leaves(arguments)[0].shape[-1]
        if num_trials > 1:
            return jax.vmap(function, -1, -1)(*arguments)
        result = function(*jax.tree.map(lambda x: jnp.squeeze(x, -1), arguments))
        return jax.tree.map(lambda x: jnp.expand_dims(x, -1), result)

    return of_all


def _of_singular_values(norm: Norm, operation: Callable[[Array, Array], Array], tree: Tree) -> Array:
    x = _only(norm, tree)
    if x.ndim <= 2:
        return size_of(norm.of_vectors, tree)
    return over_entries(operation, _decomposed(norm, x).values)


def _log(power_of_size: Array, exponent: float) -> Array:
    positive = power_of_size > 0
    logarithm = jnp.log(jnp.where(positive, power_of_size, 1.0))
    return jnp.where(positive, logarithm if exponent == 1 else exponent * logarithm, jnp.inf)


def _only(norm: Norm, tree: Tree) -> Array:
    if len(tree) > 1:
        raise ProblemError(f'scope: expected "each" for the {norm.name} norm, got "all" with several parameters')
    (x,) = tree.values()
    return x


def _decomposed(norm: Norm, x: Array) -> Singular:
    return singular_values_and_vectors(_matrix(norm, x))


def _matrix(norm: Norm, x: Array) -> Array:
    if x.ndim != 3:
        raise ProblemError(f"norm: expected matrices for the {norm.name} norm, got a parameter with {x.ndim - 1} axes")
    return x


def _traced(norm: Norm, method: str, function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """The method of a norm; a :class:`ProblemError` names it where JAX cannot trace it."""

    def call(x: Array) -> Any:
        try:
            return function(x)
        except (jax.errors.JAXTypeError, TypeError, AttributeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ProblemError(f"norm: {norm.name}.{method}: JAX cannot trace it: {reason}") from error

    return call
