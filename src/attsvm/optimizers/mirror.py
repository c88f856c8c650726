"""Mirror descent, with the ℓp potential or any other, and the rule of the ℓp potential."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from attsvm._utils.checks import check_number
from attsvm._utils.contractions import elementwise, settle
from attsvm.errors import ProblemError
from attsvm.norms import Lp
from attsvm.optimizers.chain import chain
from attsvm.optimizers.limit import euclidean, limits_of
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.potential import MirrorOf, Potential, read_potential
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import Rule
from attsvm.optimizers.scales import Scaled, Tree, read_scope, subtree
from attsvm.optimizers.sizes import signed_power
from attsvm.optimizers.transformations import LearningRate, Normalize, Relative, Schedule

Array = jax.Array


class MirrorState(NamedTuple):
    """The mirror variable ∇ψ(θ). Steps are made on it, so an entry of θ too small for a float keeps its value."""

    mirror: Tree


@dataclass(frozen=True)
class Mirror(Rule):
    """Subtract the gradient from the mirror variable: ∇ψ(θ⁺) = ∇ψ(θ) − g with ψ = (1/p)‖·‖_p^p. Its norm is ℓp.

    Parameters
    ----------
    p : float
        1 < p < ∞, and p − 1 at least √ε of the floats of the training: 1.5e-8 in float64, 3.5e-4 in float32. For
        smaller ones θ, the (p − 1)-th root, would keep less than half of the digits of the mirror variable.

    Raises
    ------
    ProblemError
        If p is out of range.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, Algorithm 1.
    """

    p: float

    on_each_head = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", check_number("p", self.p, "1 < p < inf", lambda x: x > 1))
        self._check_digits(np.dtype(np.float64))

    @property
    def norm(self) -> Lp:
        return Lp(self.p)

    @property
    def q(self) -> float:
        """The exponent of the dual norm, 1/p + 1/q = 1."""
        return self.p / (self.p - 1.0)

    def _check_digits(self, dtype: Any) -> None:
        least = 1.0 + float(np.finfo(dtype).eps) ** 0.5
        if self.p < least:
            raise ProblemError(f"p: expected at least {least:.12g} in {dtype}, got {self.p!r}")

    def init(self, params: Tree) -> MirrorState:
        """Compute the mirror variable sign(θ)|θ|^(p−1)."""
        self._check_digits(next(iter(params.values())).dtype)
        return MirrorState({name: signed_power(x, self.p - 1.0) for name, x in params.items()})

    def update(
        self, updates: Scaled, state: MirrorState, params: Tree, *, numbers: Mapping[str, Any], value: Array
    ) -> tuple[Tree, MirrorState]:
        """θ⁺ − θ, and the next mirror variable."""
        mirror: Tree = {}
        for group in updates.scales.groups:
            own = subtree(updates.gradient, group.names)
            factor = group.factor(own)
            mirror |= {name: elementwise(_stepped, state.mirror[name], factor, g) for name, g in own.items()}
        moves = {name: elementwise(self._moved, z, params[name]) for name, z in mirror.items()}
        return moves, MirrorState(mirror)

    def _moved(self, mirror: Array, before: Array) -> Array:
        return signed_power(mirror, self.q - 1.0) - before


def _stepped(mirror: Array, factor: Array, gradient: Array) -> Array:
    return settle(mirror - factor * gradient)


def mirror_descent(
    *,
    p: float | None = None,
    potential: Potential | str | None = None,
    learning_rate: float | Schedule = 0.1,
    normalize: bool = True,
    scope: Literal["all", "each"] = "all",
    relative: bool = False,
) -> Optimizer:
    """Mirror descent: ∇ψ(θ⁺) = ∇ψ(θ) − η ∇L(θ), with the potential ψ = (1/p)‖·‖_p^p, entrywise, or any other.

    The mirror variable ∇ψ(θ), for ℓp sign(θ)|θ|^(p−1), is stepped on and kept; θ is computed from it.

    Parameters
    ----------
    p : float
        The exponent of the potential, 1 < p < ∞. p = 2 is (normalized) gradient descent.
    potential : Potential or str, optional
        In place of p: ψ by its gradient and the inverse of that, or the import path ``package.module:name`` of one.
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken. For p > 2 the weights grow only like
        k^(1/(p−1)) under a constant rate; a linearly growing schedule makes up for it.
    normalize : bool
        Divide the gradient by its ℓq norm, q = p/(p − 1): exact however small it is. Otherwise training stalls where
        the gradient underflows. For another potential, the norm is the dual of that of the potential, or ℓ2.
    scope : {"all", "each"}
        One ℓq norm over all parameters, or one for each.
    relative : bool
        With p, whether η is multiplied by ‖∇ψ(θ)‖_q. Steps cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If a number is out of range, the scope is unknown, or there are not exactly one of p and the potential; or if
        the inverse of the potential does not undo its gradient.

    See Also
    --------
    attsvm.optimizers.steepest_descent
    attsvm.torch.MirrorDescent : In PyTorch.
    attsvm.measures.bregman_divergence

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, Algorithm 1 and equation (5).

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.mirror_descent(p=1.75, learning_rate=0.1)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).norm
    Lp(p=1.75)
    """
    if potential is not None:
        if p is not None:
            raise ProblemError(f"potential: expected either potential or p, got both (p = {p!r})")
        if relative:
            raise ProblemError("relative: expected False with a potential, got True")
        of_potential = MirrorOf(read_potential(potential))
        return chain(
            *([Normalize(scope, of_potential.gradient_norm)] if normalize else []),
            LearningRate(learning_rate),
            of_potential,
            name="mirror_descent",
        )
    if p is None:
        raise ProblemError("p: expected a value for mirror_descent, got none")
    rule = Mirror(p)
    kind = "gradient descent" if rule.p == 2 else "mirror descent"
    steps = f"normalized {kind}" if normalize else kind
    return chain(
        *([Normalize(scope, Lp(rule.q))] if normalize else []),
        # the step on ∇ψ(θ) is relative to its own size, ‖∇ψ(θ)‖_q = ‖θ‖_p^(p−1)
        *([Relative(read_scope(scope), rule.norm, rule.p - 1.0)] if relative else []),
        LearningRate(learning_rate),
        rule,
        name="mirror_descent",
        arguments={
            "p": rule.p,
            "learning_rate": learning_rate,
            "normalize": normalize,
            "scope": read_scope(scope),
            "relative": relative,
        },
        limits=euclidean(steps, scope) if rule.p == 2 else limits_of(rule.norm, steps),
    )


OPTIMIZERS.register("mirror_descent", mirror_descent)
