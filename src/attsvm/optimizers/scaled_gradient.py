"""Gradients with a scale taken out of them: how steps stay exact beyond the range of floats, in one class.

The true gradient of a parameter is its entries, the largest of which is about 1, times the factor of its scale. Steps
change the factor and leave the entries alone, and a rule asks for the factor as a number at the end: where the gradient
is divided by its norm, exp(log) cancels, so no digit is lost. The trailing axis of each array holds the trials.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp

from attsvm._utils.checks import check_choice
from attsvm._utils.contractions import over_all, quotient, settle
from attsvm.norms import Norm
from attsvm.optimizers.sizes import Tree, log_size_of, size_of

Array = jax.Array
Scope = Literal["all", "each"]


@dataclass(frozen=True)
class Scale:
    """The factor by which the gradients of some parameters are multiplied.

    Attributes
    ----------
    names : tuple of str
        The parameters that share it, and continue to. Far in the limit the logarithm is so large that adding that of
        a parameter's largest entry to it would lose the ratio of the parameters.
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
        # η exp(c), or η/N(g) where the gradient is divided by its norm
        length = 1.0 if self.length is None else self.length
        if self.unit is None:
            return length * jnp.exp(self.log)
        size = settle(size_of(self.unit, gradient)) if self.size is None else self.size
        # a zero gradient has no direction and moves nothing
        factor = jnp.where(size > 0, length / jnp.where(size > 0, size, 1.0), 0.0)
        return factor if self.size is None else factor * jnp.exp(self.log)

    def resolved(self, gradient: Tree) -> "Scale":
        """The scale as a logarithm alone, which does not underflow."""
        log = self.log
        if self.size is not None:
            log = log - jnp.log(jnp.where(self.size > 0, self.size, 1.0))
        elif self.unit is not None:
            # exp(c) g / N(exp(c) g) = g / N(g)
            log = -log_size_of(self.unit, gradient)
        return Scale(self.names, log if self.length is None else log + jnp.log(self.length))


jax.tree_util.register_dataclass(Scale, data_fields=["log", "size", "length", "largest"], meta_fields=["names", "unit"])


class ScaledGradient(NamedTuple):
    """A gradient on its way through a chain."""

    gradient: Tree
    """The largest entry over the parameters that share a scale is 1, or 0 if they all are zero."""

    scales: tuple[Scale, ...]
    """One for each parameter, or for several that share it."""

    @classmethod
    def shared(cls, gradient: Tree, log: Array, largest: Array | None = None) -> Self:
        """One scale for all parameters; none without parameters."""
        return cls(gradient, (Scale(tuple(gradient), log, largest=largest),) if gradient else ())

    @classmethod
    def separate(cls, gradient: Tree, logs: Mapping[str, Array]) -> Self:
        """A scale for each parameter."""
        return cls(gradient, tuple(Scale((name,), logs[name]) for name in gradient))

    def __or__(self, other: "ScaledGradient") -> "ScaledGradient":
        return ScaledGradient(self.gradient | other.gradient, self.scales + other.scales)

    @property
    def parts(self) -> Iterator[tuple[Scale, Tree]]:
        """Each scale with the gradients that share it."""
        return ((scale, subtree(self.gradient, scale.names)) for scale in self.scales)

    @property
    def logs(self) -> Tree:
        """The logarithm of the scale of each parameter."""
        return {name: scale.log for scale in self.scales for name in scale.names}

    @property
    def lengths(self) -> dict[str, Any]:
        """The number that each gradient was multiplied by: learning rates and the like."""
        return {name: 1.0 if one.length is None else one.length for one in self.scales for name in one.names}

    def factors(self) -> Tree:
        """The factor of each parameter as a number, which underflows unless the gradient is divided by its norm."""
        return {name: factor for one, own in self.parts for factor in [one.factor(own)] for name in one.names}

    def times(self, factor: Array) -> "ScaledGradient":
        """All gradients with one more factor."""
        return self._replace(scales=tuple(scale.times(factor) for scale in self.scales))

    def resolved(self) -> "ScaledGradient":
        """The gradients with logarithms alone as their scales."""
        return self._replace(scales=tuple(scale.resolved(own) for scale, own in self.parts))

    def rescaled(self) -> tuple["ScaledGradient", Tree]:
        """Divide gradients by the largest entry of all parameters that share a scale.

        Returns
        -------
        scaled : ScaledGradient
            With the largest entries taken into the logarithms; −inf for a group of zeros.
        largest : dict of str to Array, shape (B,)
            The largest entry of each parameter's group.
        """
        gradient: Tree = {}
        scales: list[Scale] = []
        largest: Tree = {}
        for scale, own in self.parts:
            most = over_all(jnp.maximum, own, jnp.abs) if scale.largest is None else scale.largest
            # 1 and no tiny number for a zero gradient: two divisions in a row are compiled into one by their product
            positive = jnp.where(most > 0, most, 1.0)
            gradient |= {name: quotient(g, positive) for name, g in own.items()}
            # exp(c) g = exp(c + log m) (g/m)
            scales.append(Scale(scale.names, scale.log + jnp.log(most)))
            largest |= dict.fromkeys(scale.names, most)
        return ScaledGradient(subtree(gradient, self.gradient), tuple(scales)), largest

    def regrouped(self, scope: Scope) -> "ScaledGradient":
        """Let all parameters share one scale, or give each its own. The largest entry of a group is 1, or 0."""
        if len(self.gradient) == 1 or (scope == "all" and len(self.scales) == 1):
            return self
        return self._aligned() if scope == "all" else self.separated()

    def separated(self) -> "ScaledGradient":
        """Give each parameter its own scale: one that shares it with a larger one may be too small for squares."""
        gradient: Tree = {}
        scales: list[Scale] = []
        for name, g in self.gradient.items():
            (scale,) = (scale for scale in self.scales if name in scale.names)
            single, _ = ScaledGradient.shared({name: g}, scale.log).rescaled()
            gradient |= single.gradient
            scales.append(replace(single.scales[0], length=scale.length))
        return ScaledGradient(gradient, tuple(scales))

    def joint_norm(self, norm: Norm) -> tuple[Array, Array]:
        """The norm of all parameters together, as the logarithm of a scale and the norm on that scale.

        On that scale, the entries of a parameter whose gradient is far smaller than that of another one are zero, and a
        rule that treats parameters by themselves could not follow them. So each keeps its own.
        """
        # those that underflow here do not count in the norm
        aligned = self._aligned()
        (scale,) = aligned.scales
        return jnp.where(jnp.isneginf(scale.log), 0.0, scale.log), settle(size_of(norm, aligned.gradient))

    def _aligned(self) -> "ScaledGradient":
        # exp(c_i) g_i = exp(c) (exp(c_i − c) g_i) with the largest c
        largest = reduce(jnp.maximum, [scale.log for scale in self.scales])
        common, logs = jnp.where(jnp.isneginf(largest), 0.0, largest), self.logs
        return ScaledGradient.shared(
            {name: g * jnp.exp(logs[name] - common) for name, g in self.gradient.items()}, largest
        )


def subtree(tree: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The entries of some names."""
    return {name: tree[name] for name in names}


def zero_logs(params: Tree) -> Tree:
    """The logarithms of zero gradients, shape (B,); half precision has too few digits for them."""
    return {
        name: jnp.full(x.shape[-1:], -jnp.inf, jnp.promote_types(x.dtype, jnp.float32)) for name, x in params.items()
    }


def read_scope(scope: str) -> Scope:
    """Read a scope, "all" or "each"; raise ProblemError if it is neither."""
    return check_choice("scope", scope, "all", "each")


def group_by_head(names: Iterable[str]) -> list[list[str]]:
    """The names of each head, as "K[0]" and "Q[0]"; all of them where the heads are not apart."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("[")[2], []).append(name)
    return list(groups.values())
