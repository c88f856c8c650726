# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""ℓp mirror descent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from attsvm.contractions import settle
from attsvm.norms import Lp
from attsvm.optimizers.optimizer import (
    Optimizer,
    Schedule,
    Step,
    StepState,
    read_learning_rate,
    read_number,
    read_scope,
)
from attsvm.optimizers.powers import power, signed_power
from attsvm.optimizers.scales import Array, Tree, grouped, over_all, over_largest


class MirrorState(NamedTuple):
    """The mirror variable ∇ψ(θ), which is stepped on: an entry of θ too small for a float loses nothing there."""

    mirror: Tree
    step: StepState


@dataclass(frozen=True)
class MirrorDescent:
    """∇ψ(θ⁺) = ∇ψ(θ) − η ∇L, or η ∇L/‖∇L‖_q, with ψ = (1/p)‖·‖_p^p and 1/p + 1/q = 1."""

    step: Step
    p: float
    normalize: bool
    scope: str
    relative: bool

    @property
    def scale_free(self) -> bool:
        return self.normalize

    @property
    def q(self) -> float:
        return self.p / (self.p - 1.0)

    def init(self, params: Tree) -> MirrorState:
        return MirrorState({name: signed_power(x, self.p - 1.0) for name, x in params.items()}, self.step.init(params))

    def update(
        self,
        gradient: Tree,
        state: MirrorState,
        params: Tree,
        numbers: Mapping[str, Any],
        log_scale: Tree,
        value: Array,
    ) -> tuple[Tree, MirrorState]:
        length, step_state = self.step.length(state.step, numbers)
        mirror: Tree = {}
        for group, log_common in grouped(gradient, log_scale, self.scope):
            step = length * self._q_norm({name: state.mirror[name] for name in group}) if self.relative else length
            if self.normalize:
                size = settle(self._q_norm_of_scaled(group))
                factor = jnp.where(size > 0, step / jnp.where(size > 0, size, 1.0), 0.0)
            else:
                factor = step * jnp.exp(log_common)
            mirror |= {name: settle(state.mirror[name] - factor * g) for name, g in group.items()}
        updates = {name: signed_power(z, self.q - 1.0) - params[name] for name, z in mirror.items()}
        return updates, MirrorState(mirror, step_state)

    def _q_norm(self, tree: Tree) -> Array:
        scaled, scale = over_largest(tree)
        return scale * self._q_norm_of_scaled(scaled)

    def _q_norm_of_scaled(self, tree: Tree) -> Array:
        powers = {name: power(jnp.abs(x), self.q) for name, x in tree.items()}
        return power(over_all(jnp.add, powers), 1.0 / self.q)


def mirror_descent(
    learning_rate: float | Schedule = 0.1,
    p: float = 2.0,
    *,
    normalize: bool = True,
    scope: Literal["all", "each"] = "all",
    relative: bool = False,
) -> Optimizer:
    """ℓp mirror descent: ∇ψ(θ⁺) = ∇ψ(θ) − η ∇L(θ) with the potential ψ = (1/p)‖·‖_p^p, entrywise.

    The mirror variable ∇ψ(θ) = sign(θ)|θ|^(p−1) is what is stepped on and kept; θ is computed from it.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken. For p > 2 the weights grow only like
        k^(1/(p−1)) under a constant one; a linearly growing schedule makes up for it.
    p : float
        The potential's exponent, 1 < p < ∞. p = 2 is (normalised) gradient descent.
    normalize : bool
        Divide the gradient by its ℓq norm, q = p/(p − 1): exact however small it is. Otherwise a gradient that
        underflows is an honest zero.
    scope : {"all", "each"}
        One ℓq norm over all parameters, or one for each.
    relative : bool
        Whether η is multiplied by ‖∇ψ(θ)‖_q. It cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If an argument is not such a number, or the scope is unknown.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, Algorithm 1 and equation (5).
    """
    step, numbers = read_learning_rate(learning_rate)
    p = read_number("p", p, "1 < p < inf", lambda x: 1 < x < np.inf)
    arguments = {"learning_rate": learning_rate, "p": p, "normalize": normalize, "scope": scope, "relative": relative}
    rule = MirrorDescent(step, p, normalize, read_scope(scope), relative)
    return Optimizer(rule, "mirror_descent", Lp(p), numbers, arguments)
