"""Normalization by a running average of the norms of gradients, which does not favour the batches of small loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import settle
from attsvm.norms import Lp
from attsvm.optimizers.hyperparameters import check_number, is_used
from attsvm.optimizers.rule import Changed, Numbers, Transformation
from attsvm.optimizers.scaled_gradient import Scale, ScaledGradient, Scope, read_scope, zero_logs
from attsvm.optimizers.sizes import Tree
from attsvm.optimizers.transformations import Normalize

Array = jax.Array


class Average(NamedTuple):
    """The logarithm of Σ_j (1 − β) β^j ‖g_j‖ over the past steps, and the sum of the weights, 1 − β^k after k steps."""

    log_sum: Tree
    weight: Array


@dataclass(frozen=True)
class NormalizeByAverage(Transformation):
    """Divide the gradient by the running average of its norms: m⁺ = β m + (1 − β)‖g‖, over 1 − β^k after k steps.

    On mini-batches the gradient of a batch of small loss is then shorter than that of others, as it is in the gradient
    of all sequences. No step is longer than 1/(1 − β). In the long run the norm falls at most by a factor β in a step.

    Parameters
    ----------
    average : float
        β, 0 ≤ β < 1.
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.

    Raises
    ------
    ProblemError
        If β is out of range, or the scope is unknown.
    """

    # numbers are not compared: equal chains share their compiled training
    average: float = field(compare=False)
    scope: Scope = "all"

    scale_free = True

    def __post_init__(self) -> None:
        average = check_number("average", self.average, "0 <= average < 1", lambda x: 0 <= x < 1)
        object.__setattr__(self, "average", average)
        read_scope(self.scope)

    @property
    def numbers(self) -> Mapping[str, float]:
        """Return β under the name ``average``."""
        return {"average": self.average}

    def init(self, params: Tree) -> Average:
        logs = zero_logs(params)
        return Average(logs, jnp.zeros_like(next(iter(logs.values()))))

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Changed:
        """Average the norms in logarithms, and subtract the logarithm of the average from that of the scale."""
        decay = numbers["average"]
        given = updates.resolved()
        given = given.regrouped("each") if self.scope == "each" else given
        whole = given.joint_norm(Lp(2.0)) if self.scope == "all" else None
        weight = decay * state.weight + (1 - decay)
        sums, scales = dict(state.log_sum), []
        for scale, own in given.parts:
            largest, size = whole or ScaledGradient(own, (scale,)).joint_norm(Lp(2.0))
            # the norm of a zero gradient is 0, and the average is that of the others
            log_norm = jnp.where(size > 0, largest + jnp.log(jnp.where(size > 0, size, 1.0)), -jnp.inf)
            before = state.log_sum[scale.names[0]]
            # m⁺ = β m + (1 − β)‖g‖ in logarithms
            after = settle(jnp.logaddexp(jnp.log(decay) + before, jnp.log1p(-decay) + log_norm))
            sums |= dict.fromkeys(scale.names, after)
            # g/(m⁺/(1 − β^k)); before the first gradient that is not zero there is no average
            known = ~jnp.isneginf(after)
            log = jnp.where(known, scale.log - jnp.where(known, after, 0.0) + jnp.log(weight), 0.0)
            scales.append(Scale(scale.names, log))
        return given._replace(scales=tuple(scales)), Average(sums, weight)


def normalization(scope: Scope, average: float) -> Normalize | NormalizeByAverage:
    """Normalize by the norm of each gradient, or, for β > 0, by their running average."""
    return NormalizeByAverage(average, scope) if is_used(average) else Normalize(scope)
