"""Norms of parameters and steepest directions, over all trials at once; the trailing axis of each array holds them.

A norm that has ``size_in_trials(tree, trials)`` and ``steepest_in_trials(gradient, trials)`` runs over all trials in
vector registers: ``trials`` is this module, whose functions take arrays with such an axis, so that a norm's file needs
no JAX. Any other norm is mapped over the trials.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from attsvm._utils import powers
from attsvm._utils.contractions import contract, lengths, over_all, over_entries, quotient, settle
from attsvm._utils.files import reason
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm, parts_of
from attsvm.optimizers.singular import Singular, exact_polar_factor, singular_values_and_vectors

Array = jax.Array


def power(x: Array, exponent: float) -> Array:
    """x^exponent for x ≥ 0 and a fixed exponent > 0; zero stays zero."""
    result: Array = powers.power(x, exponent, _POWERS)
    return result


def signed_power(x: Array, exponent: float) -> Array:
    """Compute sign(x)|x|^exponent of each entry."""
    result: Array = powers.signed_power(x, exponent, _POWERS)
    return result


def _general_power(x: Array, exponent: float) -> Array:
    return jnp.where(x > 0, jnp.exp(exponent * jnp.log(jnp.where(x > 0, x, 1.0))), 0.0)


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
    return jnp.where(x >= float(jnp.finfo(x.dtype).tiny), root, 0.0)


# four thirds of the exponent's offset 1023, less what makes the guess's errors even: (1364 - 0.068) 2^20
_BIAS = 1430186361.0

_POWERS = powers.Functions(jnp.sqrt, jnp.copysign, _general_power, cube_root)

Tree = dict[str, Array]

HERE = sys.modules[__name__]
EUCLIDEAN = Lp(2.0)

__all__ = [  # what norms use of this module
    "contract",
    "decomposed",
    "exact_polar_factor",
    "jnp",
    "lengths",
    "mapped_size",
    "mapped_steepest",
    "matrix",
    "only",
    "over_all",
    "over_entries",
    "power",
    "settle",
    "size_of",
    "steepest",
    "sum_of_squares",
]


def size_of(norm: Norm, tree: Tree) -> Array:
    """Return the norm of all entries of some parameters together, shape (B,). Their largest entry is about 1.

    ``norm``: a norm that is not entrywise takes one parameter. ``tree``: shape (..., B).
    """
    return jnp.asarray(norm.size_in_trials(tree, HERE))


def mapped_size(norm: Norm, tree: Tree) -> Array:
    """Return the same for a norm that is not entrywise, one trial at a time."""
    x = only(norm, tree)
    own = norm.of_vectors if x.ndim <= 2 else norm
    return jnp.asarray(map_trials(_traced(own, "value", own.value))(x))


def log_size_of(norm: Norm, tree: Tree) -> Array:
    """Return the logarithm of :func:`size_of`; +inf for zeros, so that a zero gradient divided by it stays zero."""
    if norm == EUCLIDEAN:
        return _log(sum_of_squares(tree), 0.5)
    return _log(size_of(norm, tree), 1.0)


def norm_of(norm: Norm, tree: Tree) -> Array:
    """Return the norm of parameters of any size, relative to their largest entry, so that no power overflows."""
    # N(x) = m N(x/m)
    largest = over_all(jnp.maximum, tree, jnp.abs)
    scale = settle(jnp.where(largest > 0, largest, 1.0))
    return scale * size_of(norm, {name: quotient(x, scale) for name, x in tree.items()})


def steepest(norm: Norm, gradient: Array) -> Array:
    """Return the D with N(D) ≤ 1 along which a linear function grows fastest; 0 for a zero gradient.

    ``norm``: with the ℓ1 norm, ties go to the first coordinate. With the spectral norm D has the rank of the gradient:
    its singular values below rounding give no direction. ``gradient``: shape (d_k, d_q, B) or (d, B), its largest entry
    is 1 or 0 in each trial. Spectral and nuclear norms of a vector are its ℓ2 norm.
    """
    own = norm.of_vectors if gradient.ndim <= 2 else norm
    return jnp.asarray(own.steepest_in_trials(gradient, HERE))


def mapped_steepest(norm: Norm, gradient: Array) -> Array:
    """Return the same, one trial at a time."""
    return jnp.asarray(map_trials(_traced(norm, "steepest", norm.steepest))(gradient))


def has_fast_steps(norm: Norm) -> bool:
    """Return whether steepest directions in this norm are computed for all trials at once."""
    return type(norm).steepest_in_trials is not Norm.steepest_in_trials and all(map(has_fast_steps, parts_of(norm)))


def dual_in_jax(norm: Norm) -> Norm:
    """Return the dual norm, with a value that JAX can trace if it can trace the steepest directions of the norm."""
    return norm.dual if has_fast_steps(norm) else DualOf(norm)


@dataclass(frozen=True)
class DualOf(Norm):
    """The dual of a norm, computed from its steepest directions."""

    of: Norm

    @property
    def name(self) -> str:
        """Dual of the other's name."""
        return f"dual of {self.of.name}"

    @property
    def dual(self) -> Norm:
        return self.of

    def value(self, x: Any, axes: int = 2) -> Any:
        """⟨x, D⟩ with the steepest D."""
        return (x * self.of.steepest(x)).sum()


def sum_of_squares(tree: Tree) -> Array:
    """Return Σ x² over all entries of all parameters, shape (B,)."""
    return over_all(jnp.add, tree, lambda x: x * x)


def map_trials(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of one trial one of all, along the trailing axis of each argument and result."""

    def of_all(*arguments: Any) -> Any:
        num_trials = jax.tree.leaves(arguments)[0].shape[-1]
        if num_trials > 1:
            return jax.vmap(function, -1, -1)(*arguments)
        result = function(*jax.tree.map(lambda x: jnp.squeeze(x, -1), arguments))
        return jax.tree.map(lambda x: jnp.expand_dims(x, -1), result)

    return of_all


def _log(power_of_size: Array, exponent: float) -> Array:
    positive = power_of_size > 0
    logarithm = jnp.log(jnp.where(positive, power_of_size, 1.0))
    return jnp.where(positive, logarithm if exponent == 1 else exponent * logarithm, jnp.inf)


def only(norm: Norm, tree: Tree) -> Array:
    """Return the only parameter of a tree, for a norm that cannot measure several together."""
    if len(tree) > 1:
        raise ProblemError(f'scope: expected "each" for the {norm.name} norm, got "all" with several parameters')
    (x,) = tree.values()
    return x


def decomposed(norm: Norm, x: Array) -> Singular:
    """Decompose one matrix for each trial into singular values and vectors."""
    return singular_values_and_vectors(matrix(norm, x))


def matrix(norm: Norm, x: Array) -> Array:
    """Check that a parameter is one matrix for each trial."""
    if x.ndim != 3:
        raise ProblemError(f"norm: expected matrices for the {norm.name} norm, got a parameter with {x.ndim - 1} axes")
    return x


def _traced(norm: Norm, method: str, function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Return the method of a norm, with a :class:`ProblemError` that names it where JAX cannot trace it."""

    def call(x: Array) -> Any:
        try:
            return function(x)
        except (jax.errors.JAXTypeError, TypeError, AttributeError) as error:
            raise ProblemError(f"norm: {norm.name}.{method}: JAX cannot trace it: {reason(error)}") from error

    return call
