"""Momentum: decaying sums of gradients."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import settle
from attsvm.optimizers.chain import Context, Transformation
from attsvm.optimizers.numbers import read_number
from attsvm.optimizers.scales import Scale, Scales, Tree, rescaled

Array = jax.Array


class SumState(NamedTuple):
    """The decaying sum of gradients, with its scale taken out: it does not underflow with them."""

    sum: Tree
    log_scale: Tree


@dataclass(frozen=True)
class DecayingSum(Transformation):
    """Replace the gradient by m⁺ = β m + ∇L, or by β m⁺ + ∇L (Nesterov).

    Parameters
    ----------
    decay : float
        β, 0 ≤ β < 1.
    nesterov : bool

    Raises
    ------
    ProblemError
        If the decay is out of range.

    See Also
    --------
    attsvm.optimizers.momentum, attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import DecayingSum, Descent, LearningRate, Normalize, chain
    >>> chain(Normalize(), DecayingSum(0.9), LearningRate(0.1), Descent()).numbers
    {'momentum': 0.9, 'learning_rate': 0.1}
    """

    # numbers are not compared: equal chains share their compiled training
    decay: float = field(default=0.9, compare=False)
    nesterov: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "decay", read_number("decay", self.decay, "0 <= decay < 1", lambda x: 0 <= x < 1))

    @property
    def numbers(self) -> Mapping[str, float]:
        """Return β under the name ``momentum``."""
        return {"momentum": self.decay}

    @property
    def degree(self) -> int:
        return 0

    def init(self, params: Tree) -> SumState:
        zeros = {name: jnp.zeros_like(x) for name, x in params.items()}
        return SumState(zeros, {name: jnp.full(x.shape[-1:], -jnp.inf, x.dtype) for name, x in params.items()})

    def apply(self, gradient: Tree, scales: Scales, state: SumState, context: Context) -> tuple[Tree, Scales, Any]:
        """Add the gradient to the sum."""
        decay, scales = context.numbers["momentum"], scales.resolved(gradient)
        added, sum_scales = _add(decay, state, gradient, scales)
        kept = SumState(added, dict(sum_scales.items()))
        if not self.nesterov:
            return added, sum_scales, kept
        return (*_add(decay, kept, gradient, scales), kept)


def _add(decay: Array, state: SumState, gradient: Tree, scales: Scales) -> tuple[Tree, Scales]:
    """The sum decay · state + gradient. Parameters that share a scale keep sharing one."""
    # without decay nothing of the state is left, so it must not set a scale at which the gradient underflows
    before = {name: jnp.where(decay > 0, log, -jnp.inf) for name, log in state.log_scale.items()}
    groups = []
    for group in scales.groups:
        largest = jnp.maximum(group.log, before[group.names[0]])
        groups.append(Scale(group.names, settle(jnp.where(jnp.isneginf(largest), 0.0, largest))))
    common = Scales(tuple(groups))
    total = {
        name: decay * jnp.exp(before[name] - c) * state.sum[name] + jnp.exp(scales[name] - c) * gradient[name]
        for name, c in common.items()
    }
    added, sum_scales, _ = rescaled(total, common)
    return added, sum_scales
