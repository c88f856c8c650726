"""Mirror descent, with the ℓp potential or any other, and its rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import elementwise, settle
from attsvm._utils.keywords import suggests
from attsvm.errors import ProblemError
from attsvm.norms import Lp, Norm
from attsvm.optimizers.optimizer import Optimizer, chain
from attsvm.optimizers.potential import Potential, Power, read_potential
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import Moves, Numbers, Rule
from attsvm.optimizers.scaled_gradient import ScaledGradient, read_scope
from attsvm.optimizers.sizes import Tree, dual_in_jax, map_trials
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.transformations import LearningRate, Normalize, Relative
from attsvm.optimizers.unit_steps import Schedule

Array = jax.Array
_ROUNDINGS = 16.0


@dataclass(frozen=True)
class Mirror(Rule):
    """Subtract the gradient from the mirror variable: ∇ψ(θ⁺) = ∇ψ(θ) − g.

    The state is the mirror variable ∇ψ(θ). Steps are made on it, so an entry of θ too small for a float keeps its
    value.

    References
    ----------
    Julistiono, Tarzanagh and Azizan (2025), *Optimizing Attention with Mirror Descent*, Algorithm 1.
    """

    potential: Potential

    @property
    def norm(self) -> Norm | None:
        """The norm of the potential."""
        return self.potential.norm

    @property
    def gradient_norm(self) -> Norm:
        """The dual norm; ℓ2 where the potential has no norm."""
        return Lp(2.0) if self.norm is None else dual_in_jax(self.norm)

    @property
    def on_each_head(self) -> bool:
        return not self.potential.entrywise

    def init(self, params: Tree) -> Tree:
        """Compute the mirror variable ∇ψ(θ)."""
        return {name: self._mapped(self.potential.gradient, x) for name, x in params.items()}

    def update(self, updates: ScaledGradient, state: Tree, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """θ⁺ − θ, and the next mirror variable."""
        # z⁺ = z − η g/‖g‖_q, where z = ∇ψ(θ)
        factors = updates.factors()
        mirror = {name: elementwise(_stepped, state[name], factors[name], g) for name, g in updates.gradient.items()}
        # θ⁺ = (∇ψ)⁻¹(z⁺)
        return {name: self._mapped(self._moved, z, params[name]) for name, z in mirror.items()}, mirror

    def following(self, state: Tree, params: Tree, rounding: Mapping[str, float]) -> Tree:
        """The mirror variable, but ∇ψ(θ) where θ is not (∇ψ)⁻¹ of it: a decay after the step, say, has changed θ."""
        found: Tree = {}
        for name, z in state.items():
            x, own = params[name], self._mapped(self.potential.inverse, z)
            # θ⁺ = θ + (θ⁺ − θ) is rounded twice, and z once in half precision
            changed = jnp.abs(x - own) > _ROUNDINGS * rounding[name] * (jnp.abs(x) + jnp.abs(own))
            changed = changed if self.potential.entrywise else jnp.any(changed, axis=tuple(range(changed.ndim - 1)))
            found[name] = jnp.where(changed, self._mapped(self.potential.gradient, x), z)
        return found

    def _moved(self, mirror: Array, before: Array) -> Array:
        after: Array = self.potential.inverse(mirror)
        return after - before

    def _mapped(self, function: Callable[..., Array], *operands: Array) -> Array:
        # entries of all trials and heads at once, in vector registers; other potentials one parameter at a time
        if self.potential.entrywise:
            return elementwise(function, *operands)
        mapped: Array = map_trials(function)(*operands)
        return mapped


def _stepped(mirror: Array, factor: Array, gradient: Array) -> Array:
    return settle(mirror - factor * gradient)


@suggests
def mirror_descent(
    learning_rate: float | Schedule = 0.1,
    *,
    p: float | None = None,
    potential: Potential | str | None = None,
    normalize: bool = True,
    scope: Literal["all", "each"] = "all",
    relative: bool = False,
) -> Optimizer:
    """Mirror descent: ∇ψ(θ⁺) = ∇ψ(θ) − η ∇L(θ), with the potential ψ = (1/p)‖·‖_p^p, entrywise, or any other.

    The mirror variable ∇ψ(θ), for ℓp sign(θ)|θ|^(p−1), is stepped on and kept; θ is computed from it.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken. For p > 2 the weights grow only like
        k^(1/(p−1)) under a constant rate; a linearly growing schedule makes up for it.
    p : float
        The exponent of the potential, 1 < p < ∞. p = 2 is (normalized) gradient descent.
    potential : Potential or str, optional
        In place of p: ψ by its gradient and the inverse of that, or the import path ``package.module:name`` of one.
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
        rule = Mirror(read_potential(potential))
        return chain(
            *([Normalize(scope, rule.gradient_norm)] if normalize else []),
            LearningRate(learning_rate),
            rule,
            name="mirror_descent",
        )
    if p is None:
        raise ProblemError("p: expected a value for mirror_descent")
    of = Power(p)
    rule = Mirror(of)
    return chain(
        *([Normalize(scope, rule.gradient_norm)] if normalize else []),
        # the step on ∇ψ(θ) is relative to its own size, ‖∇ψ(θ)‖_q = ‖θ‖_p^(p−1)
        *([Relative(read_scope(scope), of.norm, of.p - 1.0)] if relative else []),
        LearningRate(learning_rate),
        rule,
        name="mirror_descent",
        arguments={
            "p": of.p,
            "learning_rate": learning_rate,
            "normalize": normalize,
            "scope": read_scope(scope),
            "relative": relative,
        },
        steps=Steps("gradient" if of.p == 2 else "mirror", of.norm, "step" if normalize else "no", scope=scope),
    )


OPTIMIZERS.register("mirror_descent", mirror_descent)
