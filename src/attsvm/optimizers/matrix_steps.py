"""Steps along a direction of matrices, for each head by itself or for several heads as one matrix.

Which entries form one matrix: each parameter (d, m, H) of H heads by itself, its heads side by side, or all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import over_entries, settle
from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.matrix_directions import MatrixDirection, MatrixScope, read_matrix_scope
from attsvm.optimizers.rule import Changed, Moves, Numbers, Rule, SizeOfWeights
from attsvm.optimizers.scaled_gradient import ScaledGradient, group_by_head
from attsvm.optimizers.singular import divided
from attsvm.optimizers.sizes import Tree
from attsvm.optimizers.unit_steps import UNKNOWN_LENGTH, GradientLength, UnitSteps

Array = jax.Array


def map_matrices(function: Callable[[Array], Array], tree: Tree, scope: MatrixScope) -> Tree:
    """Apply a function of matrices (r, c, N) to parameters, with results of the same shapes.

    ``function``: it treats the matrices of the trailing axis independently. It is called once for each shape (r, c),
    because long vectors of matrices are computed faster than short ones. ``tree``: shape (r, c, *heads, B), parameters
    with at least two axes besides that of the trials. ``scope``: with "heads" each (r, c) is a matrix; with "fused" the
    heads of a parameter are side by side, [K_1, …, K_H]; with "kq" also the parameters of one shape, [K_1, …, K_H, Q_1,
    …, Q_H].

    Raises ProblemError if the scope is "kq" and no two parameters have the same shape.
    """
    if scope == "kq":
        return _map_joined(function, tree)
    apart = {name: _apart(x, scope) for name, x in tree.items()}
    mapped: Tree = {}
    # one call for each shape of matrices
    for shape in dict.fromkeys(x.shape[:2] for x in apart.values()):
        names = [name for name, x in apart.items() if x.shape[:2] == shape]
        results = function(jnp.concatenate([apart[name] for name in names], axis=-1))
        ends = list(accumulate(apart[name].shape[-1] for name in names))
        parts = jnp.split(results, ends[:-1], axis=-1)
        mapped |= {name: part.reshape(tree[name].shape) for name, part in zip(names, parts, strict=True)}
    return {name: mapped[name] for name in tree}


def heads_apart(x: Array) -> Array:
    """A parameter (r, c, *heads, B) as matrices (r, c, heads·B)."""
    return _apart(x, "heads")


def shape_of_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape (*heads, r, c) that users know of a parameter (r, c, *heads, B)."""
    return shape[2:-1] + shape[:2]


def _map_joined(function: Callable[[Array], Array], tree: Tree) -> Tree:
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, x in tree.items():
        by_shape.setdefault(x.shape, []).append(name)
    if len(tree) > 1 and len(by_shape) == len(tree):
        shapes = ", ".join(str(shape_of_one(shape)) for shape in by_shape)
        raise ProblemError(f'scope: expected two parameters of one shape for "kq", got shapes {shapes}')
    # parameters of one shape are as heads of one parameter
    joined = {names[0]: jnp.stack([tree[name] for name in names], axis=2) for names in by_shape.values()}
    mapped = map_matrices(function, joined, "fused")
    return {name: mapped[names[0]][:, :, i] for names in by_shape.values() for i, name in enumerate(names)}


def _apart(x: Array, scope: MatrixScope) -> Array:
    """A parameter (r, c, *heads, B) as matrices (r, c, heads·B), or (r, c·heads, B) if fused."""
    rows, columns, *_, trials = x.shape
    return x.reshape((rows, columns, -1) if scope == "heads" else (rows, -1, trials))


@dataclass(frozen=True)
class MatrixSteps(Rule):
    """Subtract the direction of each matrix; of a vector, the vector over its ℓ2 norm.

    Parameters
    ----------
    direction : MatrixDirection
    scope : {"heads", "fused", "kq"}
        What is one matrix: each (d, m) of a parameter (H, d, m); [K_1, …, K_H]; or [K_1, …, K_H, Q_1, …, Q_H].
    """

    direction: MatrixDirection
    scope: MatrixScope = "heads"

    scale_free = True

    def __post_init__(self) -> None:
        read_matrix_scope(self.scope)

    @property
    def norm(self) -> Norm:
        """The norm of the direction."""
        return self.direction.norm

    @property
    def on_each_head(self) -> bool:
        return self.scope == "heads"

    def unit_steps(self, gradient: GradientLength = UNKNOWN_LENGTH) -> UnitSteps | None:
        """For gradients of any length, on each head, if the direction has length one."""
        if self.scope != "heads" or not self.direction.exact:
            return None
        return UnitSteps(self.norm, False, gradient.rate, exact=self.direction.never_longer)

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """Return the steps −η D."""
        # parameters of one matrix need one scale; the direction does not depend on it otherwise
        common = updates.resolved().regrouped("all").gradient if self.scope == "kq" else updates.gradient
        matrices = {name: g for name, g in common.items() if g.ndim > 2}
        along = map_matrices(self._along, matrices, self.scope)
        # vectors step along their ℓ2 direction
        along |= {name: _unit(g) for name, g in updates.gradient.items() if g.ndim <= 2}
        # −η D: only the learning rate is left of the scale
        return {name: -length * along[name] for name, length in updates.lengths.items()}, state

    def _along(self, matrices: Array) -> Array:
        return self.direction.of(divided(matrices, _largest(matrices)))


@dataclass(frozen=True)
class ByLogit(SizeOfWeights):
    """Divide the gradients by the sum over K and Q of what a unit step of the other changes a logit by.

    A step of length η then changes the logits k'KQ'z of unit keys and queries by about η at most, in every head.
    """

    direction: MatrixDirection

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Changed:
        """Divide all gradients by the sum; by 1 where all weights are zero."""
        reach = {name: self._reach(params[name]) for name in updates.gradient}
        pairs = group_by_head(reach)
        if len({len(names) for names in pairs}) > 1:
            raise ProblemError("by_logit: expected False for attention heads that share keys, got True")
        # N(K) + N(Q) of each head, and the largest of the heads
        whole = reduce(jnp.maximum, [reduce(jnp.add, [reach[name] for name in names]) for names in pairs])
        return updates.times(1.0 / jnp.where(whole > 0, whole, 1.0)), state

    def _reach(self, x: Array) -> Array:
        """The largest of the heads of one parameter."""
        if x.ndim <= 2:
            return _length(x)
        matrices = _apart(x, "heads")
        largest = _largest(matrices)
        # N is homogeneous: computed on entries of about 1
        of_each = largest * self.direction.reach(divided(matrices, largest))
        return jnp.max(of_each.reshape(-1, x.shape[-1]), axis=0)


def _unit(vector: Array) -> Array:
    return divided(vector, _length(vector))


def _length(vector: Array) -> Array:
    largest = over_entries(jnp.maximum, jnp.abs(vector))
    scaled = divided(vector, largest)
    return largest * jnp.sqrt(over_entries(jnp.add, scaled * scaled))


def _largest(matrices: Array) -> Array:
    return settle(over_entries(jnp.maximum, jnp.abs(matrices)))
