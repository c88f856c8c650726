"""Which entries form one matrix: each parameter (d, m, H) of H heads by itself, its heads side by side, or all."""

from collections.abc import Callable
from itertools import accumulate
from typing import Literal

import jax
import jax.numpy as jnp

from attsvm.errors import ProblemError
from attsvm.optimizers.sizes import Tree

Array = jax.Array
MatrixScope = Literal["heads", "fused", "kq"]
MATRIX_SCOPES: tuple[MatrixScope, ...] = ("heads", "fused", "kq")


def read_matrix_scope(scope: str) -> MatrixScope:
    """Read a scope of matrices; raise ProblemError if it is none."""
    for known in MATRIX_SCOPES:
        if scope == known:
            return known
    raise ProblemError(f'scope: expected "heads", "fused" or "kq", got {scope!r}')


def over_matrices(function: Callable[[Array], Array], tree: Tree, scope: MatrixScope) -> Tree:
    """Apply a function of matrices (r, c, N) to parameters, with results of the same shapes.

    ``function``: it treats the matrices of the trailing axis independently. It is called once for each shape (r, c),
    because long vectors of matrices are computed faster than short ones. ``tree``: shape (r, c, *heads, B), parameters
    with at least two axes besides that of the trials. ``scope``: with "heads" each (r, c) is a matrix; with "fused" the
    heads of a parameter are side by side, [K_1, …, K_H]; with "kq" also the parameters of one shape, [K_1, …, K_H, Q_1,
    …, Q_H].

    Raises ProblemError if the scope is "kq" and no two parameters have the same shape.
    """
    if scope == "kq":
        return _over_joined(function, tree)
    apart = {name: _apart(x, scope) for name, x in tree.items()}
    mapped: Tree = {}
    for shape in dict.fromkeys(x.shape[:2] for x in apart.values()):
        names = [name for name, x in apart.items() if x.shape[:2] == shape]
        results = function(jnp.concatenate([apart[name] for name in names], axis=-1))
        ends = list(accumulate(apart[name].shape[-1] for name in names))
        parts = jnp.split(results, ends[:-1], axis=-1)
        mapped |= {name: part.reshape(tree[name].shape) for name, part in zip(names, parts, strict=True)}
    return {name: mapped[name] for name in tree}


def largest_over_matrices(function: Callable[[Array], Array], x: Array, scope: MatrixScope) -> Array:
    """The largest over the matrices of one parameter, (B,), of a function from (r, c, N) to (N,)."""
    of_each = function(_apart(x, scope))
    return jnp.max(of_each.reshape(-1, x.shape[-1]), axis=0)


def heads_apart(x: Array) -> Array:
    """A parameter (r, c, *heads, B) as matrices (r, c, heads·B)."""
    return _apart(x, "heads")


def shape_of_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape (*heads, r, c) that users know of a parameter (r, c, *heads, B)."""
    return shape[2:-1] + shape[:2]


def _over_joined(function: Callable[[Array], Array], tree: Tree) -> Tree:
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, x in tree.items():
        by_shape.setdefault(x.shape, []).append(name)
    if len(tree) > 1 and len(by_shape) == len(tree):
        shapes = ", ".join(str(shape_of_one(shape)) for shape in by_shape)
        raise ProblemError(f'scope: expected two parameters of one shape for "kq", got shapes {shapes}')
    # parameters of one shape are as heads of one parameter
    joined = {names[0]: jnp.stack([tree[name] for name in names], axis=2) for names in by_shape.values()}
    mapped = over_matrices(function, joined, "fused")
    return {name: mapped[names[0]][:, :, i] for names in by_shape.values() for i, name in enumerate(names)}


def _apart(x: Array, scope: MatrixScope) -> Array:
    """A parameter (r, c, *heads, B) as matrices (r, c, heads·B), or (r, c·heads, B) if fused."""
    rows, columns, *_, trials = x.shape
    return x.reshape((rows, columns, -1) if scope == "heads" else (rows, -1, trials))
