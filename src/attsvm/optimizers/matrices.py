"""What is one matrix: each parameter (H, d, m) of H heads by itself, its heads side by side, or all parameters."""

from collections.abc import Callable
from itertools import accumulate
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from attsvm.errors import ProblemError
from attsvm.optimizers.sizes import Tree

Array = jax.Array
MatrixScope = Literal["heads", "fused", "kq"]
MATRIX_SCOPES: tuple[MatrixScope, ...] = ("heads", "fused", "kq")


def read_matrix_scope(scope: str) -> MatrixScope:
    """A scope of matrices.

    Raises
    ------
    ProblemError
        If it is none.
    """
    for known in MATRIX_SCOPES:
        if scope == known:
            return known
    raise ProblemError(f'scope: expected "heads", "fused" or "kq", got {scope!r}')


def over_matrices(function: Callable[[Array], Array], tree: Tree, scope: MatrixScope) -> Tree:
    """Apply a function of matrices (r, c, N) to parameters, with results of the same shapes.

    Parameters
    ----------
    function : callable
        It treats the matrices of the trailing axis independently. It is called once for each shape (r, c), because long
        vectors of matrices are computed faster than short ones.
    tree : dict of str to Array, shape (*lead, r, c, B)
        Parameters with at least two axes besides that of the trials. Those of several heads have the axis of the heads
        among the leading ones.
    scope : {"heads", "fused", "kq"}
        "heads": each (r, c) is a matrix. "fused": the heads of a parameter side by side, [K_1, …, K_H]. "kq": also the
        parameters of one shape side by side, [K_1, …, K_H, Q_1, …, Q_H].

    Raises
    ------
    ProblemError
        If the scope is "kq" and no two parameters have the same shape.
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
        mapped |= {name: _together(part, tree[name].shape, scope) for name, part in zip(names, parts, strict=True)}
    return {name: mapped[name] for name in tree}


def largest_over_matrices(function: Callable[[Array], Array], x: Array, scope: MatrixScope) -> Array:
    """The largest over the matrices of one parameter, (B,), of a function from (r, c, N) to (N,)."""
    of_each = function(_apart(x, scope))
    return jnp.max(of_each.reshape(-1, x.shape[-1]), axis=0)


def heads_apart(x: Array) -> Array:
    """A parameter (*lead, r, c, B) as matrices (r, c, lead·B)."""
    return _apart(x, "heads")


def heads_together(x: Array, shape: tuple[int, ...]) -> Array:
    """The parameter of this shape that :func:`heads_apart` took apart."""
    return _together(x, shape, "heads")


def _over_joined(function: Callable[[Array], Array], tree: Tree) -> Tree:
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, x in tree.items():
        by_shape.setdefault(x.shape, []).append(name)
    if len(tree) > 1 and len(by_shape) == len(tree):
        shapes = ", ".join(str(shape[:-1]) for shape in by_shape)
        raise ProblemError(f'scope: expected two parameters of one shape for "kq", got shapes {shapes}')
    # parameters of one shape are as heads of one parameter
    joined = {names[0]: jnp.stack([tree[name] for name in names]) for names in by_shape.values()}
    mapped = over_matrices(function, joined, "fused")
    return {name: x for names in by_shape.values() for name, x in zip(names, mapped[names[0]], strict=True)}


def _apart(x: Array, scope: MatrixScope) -> Array:
    """A parameter (*lead, r, c, B) as matrices (r, c, lead·B), or (r, lead·c, B) if fused."""
    *lead, rows, columns, trials = x.shape
    heads = int(np.prod(lead, dtype=np.int64))
    x = x.reshape(heads, rows, columns, trials)
    if scope == "heads":
        return jnp.moveaxis(x, 0, 2).reshape(rows, columns, heads * trials)
    return jnp.moveaxis(x, 0, 1).reshape(rows, heads * columns, trials)


def _together(x: Array, shape: tuple[int, ...], scope: MatrixScope) -> Array:
    """The parameter of this shape that :func:`_apart` took apart."""
    *lead, rows, columns, trials = shape
    heads = int(np.prod(lead, dtype=np.int64))
    if scope == "heads":
        return jnp.moveaxis(x.reshape(rows, columns, heads, trials), 2, 0).reshape(shape)
    return jnp.moveaxis(x.reshape(rows, heads, columns, trials), 1, 0).reshape(shape)
