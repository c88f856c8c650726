# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""Momentum for any optimiser."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from attsvm.contractions import settle
from attsvm.errors import ProblemError
from attsvm.optimizers.foreign import rule_of
from attsvm.optimizers.optimizer import Optimizer, Rule, read_number
from attsvm.optimizers.scales import Array, Tree, rescaled


class MomentumState(NamedTuple):
    """The decaying sum of gradients, with its scale taken out: it does not underflow with them."""

    sum: Tree
    log_scale: Tree
    inner: Any


@dataclass(frozen=True)
class Momentum:
    """Another rule, given m⁺ = β m + ∇L in place of the gradient, or β m⁺ + ∇L (Nesterov)."""

    inner: Rule
    nesterov: bool

    @property
    def scale_free(self) -> bool:
        return self.inner.scale_free

    def init(self, params: Tree) -> MomentumState:
        zeros = {name: jnp.zeros_like(x) for name, x in params.items()}
        scales = {name: jnp.full(x.shape[-1:], -jnp.inf, x.dtype) for name, x in params.items()}
        return MomentumState(zeros, scales, self.inner.init(params))

    def update(
        self,
        gradient: Tree,
        state: MomentumState,
        params: Tree,
        numbers: Mapping[str, Any],
        log_scale: Tree,
        value: Array,
    ) -> tuple[Tree, MomentumState]:
        decay = numbers["momentum"]
        added, scales = _add(decay, (state.sum, state.log_scale), (gradient, log_scale))
        given = _add(decay, (added, scales), (gradient, log_scale)) if self.nesterov else (added, scales)
        updates, inner = self.inner.update(given[0], state.inner, params, numbers, given[1], value)
        return updates, MomentumState(added, scales, inner)


def _add(decay: Array, first: tuple[Tree, Tree], second: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
    """The sum decay · first + second of pairs of arrays and the logarithms of their scales."""
    shared: dict[int, Array] = {}
    common: Tree = {}
    for name, c in second[1].items():
        # parameters that share a scale keep sharing one
        if id(c) not in shared:
            largest = jnp.maximum(c, first[1][name])
            shared[id(c)] = settle(jnp.where(jnp.isneginf(largest), 0.0, largest))
        common[name] = shared[id(c)]
    total = {
        name: decay * jnp.exp(first[1][name] - c) * first[0][name] + jnp.exp(second[1][name] - c) * second[0][name]
        for name, c in common.items()
    }
    total, scales, _ = rescaled(total, common)
    return total, scales


def momentum(inner: optax.GradientTransformation, decay: float = 0.9, *, nesterov: bool = False) -> Optimizer:
    """Momentum for any optimiser: it is given m⁺ = β m + ∇L in place of the gradient.

    ``momentum(gradient_descent(η))`` is the heavy ball, ``momentum(normalized_gradient_descent(η))`` steps along the
    decaying sum of the gradients, ``normalized_gradient_descent`` of which is taken exactly: the sum is kept with its
    scale taken out, so that it does not underflow.  ``momentum(steepest_descent(η, "spectral"))`` is Muon with the
    exact polar factor.

    Parameters
    ----------
    inner : optax.GradientTransformation
        One of :mod:`attsvm.optimizers` or any of optax's.
    decay : float
        β, 0 ≤ β < 1.
    nesterov : bool
        Give β m⁺ + ∇L instead.

    Raises
    ------
    ProblemError
        If ``inner`` is no optimiser, or has momentum already, or the decay is out of range.
    """
    rule, numbers = rule_of(inner)
    decay = read_number("decay", decay, "0 <= decay < 1", lambda x: 0 <= x < 1)
    if "momentum" in numbers:
        raise ProblemError("inner: has momentum already")
    arguments = {"inner": inner, "decay": decay, "nesterov": nesterov}
    numbers = numbers | {"momentum": decay}
    return Optimizer(Momentum(rule, nesterov), "momentum", getattr(inner, "norm", None), numbers, arguments)
