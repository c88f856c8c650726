"""Gradients with a scale taken out of them, and the factors by which they are multiplied in a step.

The trailing axis of each array holds the trials. The names of single attention heads are those of rules that see the
heads apart.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import quotient, settle
from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.sizes import Tree as Tree
from attsvm.optimizers.sizes import log_size_of, over_all, size_of

Array = jax.Array
Scope = Literal["all", "each"]


@dataclass(frozen=True)
class Scale:
    """The factor by which the gradients of some parameters are multiplied.

    Attributes
    ----------
    names : tuple of str
        The parameters that share it.
    log : Array, shape (B,)
        Logarithm of the factor that was taken out of the gradients.
    unit : Norm or None
        The norm by which the gradients are divided, jointly; ``log`` then has no effect, unless there is a ``size``.
    size : Array or None
        That norm, where it is one of the gradients of other scales, too, on the scale of the largest of them. Then
        ``log`` is relative to that scale.
    length : Array or None
        A further factor: learning rates and the like.
    largest : Array or None
        The largest |entry| of the gradients, where it has been computed, shape (B,).
    """

    names: tuple[str, ...]
    log: Array
    unit: Norm | None = None
    size: Array | None = None
    length: Array | None = None
    largest: Array | None = None

    def times(self, factor: Array) -> "Scale":
        """The scale with one more factor."""
        return replace(self, length=factor if self.length is None else self.length * factor)

    def factor(self, gradient: Tree) -> Array:
        """The factor as a number, zero for a zero gradient; ``gradient`` holds the parameters of this scale."""
        length = 1.0 if self.length is None else self.length
        if self.unit is None:
            return length * jnp.exp(self.log)
        size = settle(size_of(self.unit, gradient)) if self.size is None else self.size
        # a zero gradient has no direction and moves nothing
        factor = jnp.where(size > 0, length / jnp.where(size > 0, size, 1.0), 0.0)
        return factor if self.size is None else factor * jnp.exp(self.log)

    def resolved(self, gradient: Tree) -> "Scale":
        """The same scale as a logarithm alone, which does not underflow."""
        log = self.log
        if self.size is not None:
            log = log - jnp.log(jnp.where(self.size > 0, self.size, 1.0))
        elif self.unit is not None:
            log = -log_size_of(self.unit, gradient)
        return Scale(self.names, log if self.length is None else log + jnp.log(self.length))


@dataclass(frozen=True)
class Scales:
    """Which parameters share a scale, and what it is.

    Parameters that share a scale continue to share it. Far in the limit the logarithm of the scale is so large that
    adding the logarithm of a parameter's largest entry to it would lose the ratio of the parameters.
    """

    groups: tuple[Scale, ...]

    @classmethod
    def shared(cls, names: Iterable[str], log: Array) -> "Scales":
        """One scale for several parameters."""
        return cls((Scale(tuple(names), log),))

    @classmethod
    def separate(cls, logs: Mapping[str, Array]) -> "Scales":
        """A scale for each parameter."""
        return cls(tuple(Scale((name,), log) for name, log in logs.items()))

    def __or__(self, other: "Scales") -> "Scales":
        return Scales(self.groups + other.groups)

    def __getitem__(self, name: str) -> Array:
        """Logarithm of the scale of a parameter."""
        return next(group.log for group in self.groups if name in group.names)

    def items(self) -> Iterator[tuple[str, Array]]:
        """Each parameter and the logarithm of its scale."""
        return ((name, group.log) for group in self.groups for name in group.names)

    def times(self, factor: Array) -> "Scales":
        """The same scales with one more factor."""
        return Scales(tuple(group.times(factor) for group in self.groups))

    def resolved(self, gradient: Tree) -> "Scales":
        """The same scales as logarithms alone."""
        return Scales(tuple(group.resolved(subtree(gradient, group.names)) for group in self.groups))


class Scaled(NamedTuple):
    """A gradient on its way through a chain: the true one is each entry times the factor of its scale."""

    gradient: Tree
    """The largest entry over the parameters that share a scale is 1, or 0 if they all are zero."""

    scales: Scales


for _kind, _data, _meta in ((Scale, ["log", "size", "length", "largest"], ["names", "unit"]), (Scales, ["groups"], [])):
    jax.tree_util.register_dataclass(_kind, data_fields=_data, meta_fields=_meta)


def subtree(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The entries of some names."""
    return {name: tree[name] for name in names}


def rescaled(gradient: Tree, scales: Scales) -> tuple[Tree, Scales, Tree]:
    """Divide gradients by the largest entry of all parameters that share a scale.

    Returns
    -------
    gradient : dict of str to Array
        The largest entry of each group is 1, or 0.
    scales : Scales
        With the largest entries taken in; −inf for a group of zeros.
    largest : dict of str to Array, shape (B,)
        The largest entry of each parameter's group.
    """
    scaled: Tree = {}
    groups: list[Scale] = []
    largest: Tree = {}
    for group in scales.groups:
        most = group.largest
        if most is None:
            most = over_all(jnp.maximum, subtree(gradient, group.names), jnp.abs)
        # 1 and no tiny number for a zero gradient: two divisions in a row are compiled into one by their product
        positive = jnp.where(most > 0, most, 1.0)
        scaled |= {name: quotient(gradient[name], positive) for name in group.names}
        groups.append(Scale(group.names, group.log + jnp.log(most)))
        largest |= dict.fromkeys(group.names, most)
    return subtree(scaled, gradient), Scales(tuple(groups)), largest


def regrouped(gradient: Tree, scales: Scales, scope: Scope) -> tuple[Tree, Scales]:
    """Let all parameters share one scale, or give each its own. The largest entry of a group is 1, or 0."""
    names = tuple(gradient)
    if len(names) == 1:
        return gradient, scales
    if scope == "all":
        return (gradient, scales) if len(scales.groups) == 1 else _aligned(gradient, scales)
    return separated(gradient, scales)


def separated(gradient: Tree, scales: Scales) -> tuple[Tree, Scales]:
    """Give each parameter its own scale: one that shares its scale with a larger one may be too small for squares."""
    own: Tree = {}
    groups: list[Scale] = []
    for name, g in gradient.items():
        (group,) = (group for group in scales.groups if name in group.names)
        single, of_one, _ = rescaled({name: g}, Scales.separate({name: group.log}))
        own |= single
        groups.append(replace(of_one.groups[0], length=group.length))
    return own, Scales(tuple(groups))


def joint_norm(gradient: Tree, scales: Scales, norm: Norm) -> tuple[Array, Array]:
    """The norm of all parameters together, as the logarithm of a scale and the norm on that scale.

    On that scale, the entries of a parameter whose gradient is far smaller than that of another one are zero, and a
    rule that treats parameters by themselves could not follow them. So each keeps its own.
    """
    # those that underflow here do not count in the norm
    aligned, common = _aligned(gradient, scales)
    (group,) = common.groups
    return jnp.where(jnp.isneginf(group.log), 0.0, group.log), settle(size_of(norm, aligned))


def _aligned(gradient: Tree, scales: Scales) -> tuple[Tree, Scales]:
    largest = reduce(jnp.maximum, [group.log for group in scales.groups])
    common = jnp.where(jnp.isneginf(largest), 0.0, largest)
    gradient = {name: g * jnp.exp(scales[name] - common) for name, g in gradient.items()}
    return gradient, Scales.shared(gradient, largest)


def read_scope(scope: str) -> Scope:
    """Read a scope, "all" or "each"; raise ProblemError if it is neither."""
    if scope == "all":
        return "all"
    if scope == "each":
        return "each"
    raise ProblemError(f'scope: expected "all" or "each", got {scope!r}')


def of_head(name: str, head: int) -> str:
    """The name of a parameter of one head."""
    return f"{name}[{head}]"


def shared_name(name: str) -> str:
    """The name of the parameter of all heads."""
    return name.partition("[")[0]


def by_head(names: Iterable[str]) -> list[list[str]]:
    """The names of each head; all of them where the heads are not apart."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("[")[2], []).append(name)
    return list(groups.values())
