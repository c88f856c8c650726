"""The rule of ℓp mirror descent."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from attsvm.contractions import settle
from attsvm.norms import Lp
from attsvm.optimizers.numbers import read_number
from attsvm.optimizers.powers import signed_power
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scales, Tree, subtree
from attsvm.optimizers.sizes import norm_of

Array = jax.Array


class MirrorState(NamedTuple):
    """The mirror variable ∇ψ(θ). The steps are made on it, so an entry of θ too small for a float keeps its value."""

    mirror: Tree


@dataclass(frozen=True)
class Mirror(Rule):
    """Subtract the gradient from the mirror variable: ∇ψ(θ⁺) = ∇ψ(θ) − g with ψ = (1/p)‖·‖_p^p. Its norm is ℓp.

    Parameters
    ----------
    p : float
        1 < p < ∞.

    Raises
    ------
    ProblemError
        If p is out of range.
    """

    p: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", read_number("p", self.p, "1 < p < inf", lambda x: 1 < x < np.inf))

    @property
    def norm(self) -> Lp:
        """ℓp."""
        return Lp(self.p)

    @property
    def gradient_norm(self) -> Lp:
        """ℓq, the dual norm."""
        return Lp(self.q)

    @property
    def q(self) -> float:
        """The exponent of the dual norm, 1/p + 1/q = 1."""
        return self.p / (self.p - 1.0)

    def init(self, params: Tree) -> MirrorState:
        """sign(θ)|θ|^(p−1)."""
        return MirrorState({name: signed_power(x, self.p - 1.0) for name, x in params.items()})

    def update(
        self, gradient: Tree, state: MirrorState, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, MirrorState]:
        """θ⁺ − θ, and the next mirror variable."""
        mirror: Tree = {}
        for group in scales.groups:
            own = subtree(gradient, group.names)
            factor = group.factor(own)
            mirror |= {name: settle(state.mirror[name] - factor * g) for name, g in own.items()}
        updates = {name: signed_power(z, self.q - 1.0) - params[name] for name, z in mirror.items()}
        return updates, MirrorState(mirror)

    # scales that are marked as normalized are used as they are
    follow = update

    def size_of_weights(self, names: Iterable[str], params: Tree, state: MirrorState) -> Array:
        """‖∇ψ(θ)‖_q."""
        return norm_of(self.gradient_norm, subtree(state.mirror, names))
