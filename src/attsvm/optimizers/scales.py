"""Gradients with a scale taken out of them: largest entries, common factors, norms; and one trial as one of many."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from attsvm.contractions import over_entries, settle

Array = jax.Array
Tree = dict[str, Array]


def rescaled(gradient: Tree, log_scale: Tree) -> tuple[Tree, Tree, Tree]:
    """Gradients over the largest entry of all parameters that share a scale, that scale with it taken in, and it.

    Parameters share a scale if it is one array. They then keep sharing one: far in the limit it is so large a number
    that adding the logarithm of each one's own largest entry would lose how they compare.
    """
    sharing: dict[int, list[str]] = {}
    for name, scale in log_scale.items():
        sharing.setdefault(id(scale), []).append(name)
    scaled: Tree = {}
    scales: Tree = {}
    largest: Tree = {}
    for names in sharing.values():
        most = over_all(jnp.maximum, {name: jnp.abs(gradient[name]) for name in names})
        # 1 and no tiny number for a zero gradient: two divisions in a row are compiled into one by their product
        positive = jnp.where(most > 0, most, 1.0)
        scaled |= {name: gradient[name] / positive for name in names}
        scales |= dict.fromkeys(names, log_scale[names[0]] + jnp.log(most))
        largest |= dict.fromkeys(names, most)
    return {name: scaled[name] for name in gradient}, scales, largest


def grouped(gradient: Tree, log_scale: Tree, scope: str) -> list[tuple[Tree, Array]]:
    """The parameters that share a norm, all of them or each by itself, and the scale taken out of each group.

    The largest entry of a group is 1, or 0.
    """
    if scope == "all" or len(gradient) == 1:
        return [_aligned(gradient, log_scale)]
    groups = []
    for name, g in gradient.items():
        # one that shares its scale with a larger one may be too small for squares
        own, scale, _ = rescaled({name: g}, {name: log_scale[name]})
        groups.append((own, scale[name]))
    return groups


def _aligned(gradient: Tree, log_scale: Tree) -> tuple[Tree, Array]:
    distinct = list({id(c): c for c in log_scale.values()}.values())
    if len(distinct) == 1:
        return gradient, distinct[0]
    largest = reduce(jnp.maximum, distinct)
    common = jnp.where(jnp.isneginf(largest), 0.0, largest)
    return {name: g * jnp.exp(log_scale[name] - common) for name, g in gradient.items()}, largest


def l2_norm(tree: Tree) -> Array:
    """ℓ2 norm over all entries, relative to the largest, so that squares neither overflow nor underflow."""
    scaled, scale = over_largest(tree)
    return scale * jnp.sqrt(sum_of_squares(scaled))


def sum_of_squares(tree: Tree) -> Array:
    """Σ x² over all entries of all parameters, shape (B,)."""
    return over_all(jnp.add, {name: x * x for name, x in tree.items()})


def over_all(operation: Callable[[Array, Array], Array], tree: Tree) -> Array:
    """Reduce all entries of all parameters: to shape (B,)."""
    return reduce(operation, [over_entries(operation, x) for x in tree.values()])


def over_largest(tree: Tree) -> tuple[Tree, Array]:
    """All parameters over their largest entry (1 where all are zero), and that."""
    largest = over_all(jnp.maximum, {name: jnp.abs(x) for name, x in tree.items()})
    scale = settle(jnp.where(largest > 0, largest, 1.0))
    return {name: x / scale for name, x in tree.items()}, scale


def over_trials(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one trial as one of all, the trials along the trailing axis of each argument and result."""

    def of_all(*arguments: Any) -> Any:
        num_trials = jax.tree.leaves(arguments)[0].shape[-1]
        if num_trials > 1:
            return jax.vmap(function, -1, -1)(*arguments)
        result = function(*jax.tree.map(lambda x: jnp.squeeze(x, -1), arguments))
        return jax.tree.map(lambda x: jnp.expand_dims(x, -1), result)

    return of_all
