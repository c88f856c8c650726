"""Steepest descent in a norm: sign, coordinate, spectral descent and others, and its rule."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from attsvm.norms import Norm, parse_norm
from attsvm.norms.check import checked
from attsvm.optimizers.chain import chain
from attsvm.optimizers.limit import INDUCED, limits_of, of_each_head
from attsvm.optimizers.optimizer import Optimizer
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import ProportionalRule
from attsvm.optimizers.scales import Scale, Scales, Tree, separated, subtree
from attsvm.optimizers.sizes import has_fast_steps, norm_of, size_of, steepest
from attsvm.optimizers.transformations import LearningRate, Normalize, Relative, Schedule

Array = jax.Array


@dataclass(frozen=True, init=False)
class Steepest(ProportionalRule):
    """Subtract N*(g) D from each parameter, where D maximises ⟨g, D⟩ over N(D) ≤ 1.

    Parameters
    ----------
    norm : str, float or Norm
        N; it provides ``steepest``, which JAX can trace.

    Raises
    ------
    ProblemError
        If the norm is unknown, or does not provide ``steepest``.

    See Also
    --------
    attsvm.optimizers.steepest_descent

    Examples
    --------
    >>> from attsvm.optimizers import LearningRate, Normalize, Steepest, chain
    >>> chain(Normalize(), LearningRate(0.1), Steepest("linf")).norm.name
    'linf'
    """

    of: Norm

    def __init__(self, norm: str | float | Norm) -> None:
        parsed = parse_norm(norm)
        if type(parsed).steepest is Norm.steepest:
            Norm.steepest(parsed, None)  # raises the error that names the missing piece
        checked(parsed, jax=True)
        object.__setattr__(self, "of", parsed)

    @property
    def norm(self) -> Norm:
        return self.of

    @property
    def gradient_norm(self) -> Norm:
        return dual_in_jax(self.norm)

    @property
    def concurrent(self) -> bool:
        """Whether the directions are computed without LAPACK for all trials at once."""
        return has_fast_steps(self.norm)

    @property
    def heads_apart(self) -> bool:
        """True: the parameters of each head are stepped on separately."""
        return True

    @property
    def state_degree(self) -> float:
        return 0.0

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """−N*(g) D of each parameter."""
        updates: Tree = {}
        for group in scales.groups:
            own, singles = subtree(gradient, group.names), Scales((group,))
            if len(own) > 1 or (len(gradient) > 1 and group.unit is None):
                joint = group if group.unit is None else group.resolved(own)
                own, singles = separated(own, Scales((joint,)))
            for single in singles.groups:
                (name,) = single.names
                updates[name] = -self._length(single, {name: own[name]}) * steepest(self.norm, own[name])
        return updates, state

    def _length(self, scale: Scale, gradient: Tree) -> Array | float:
        """N* of the gradient with its scale."""
        if scale.unit == self.gradient_norm:
            return 1.0 if scale.length is None else scale.length
        size = size_of(self.gradient_norm, gradient)
        if scale.unit is not None:
            return scale.factor(gradient) * size
        return (size if scale.length is None else scale.length * size) * jnp.exp(scale.log)

    def size_of_weights(self, names: Iterable[str], params: Tree, state: Any) -> Array:
        """N(θ), of one parameter."""
        return norm_of(self.norm, subtree(params, names))


def dual_in_jax(norm: Norm) -> Norm:
    """The dual norm, with a value that JAX can trace if it can trace the steepest directions of the norm."""
    return norm.dual if has_fast_steps(norm) else DualOf(norm)


@dataclass(frozen=True)
class DualOf(Norm):
    """The dual of a norm, computed from its steepest directions."""

    of: Norm

    @property
    def name(self) -> str:
        """Dual of the other's name."""
        return f"dual of {self.of.name}"

    @property
    def dual(self) -> Norm:
        return self.of

    def value(self, x: Any, axes: int = 2) -> Any:
        """⟨x, D⟩ with the steepest D."""
        return (x * self.of.steepest(x)).sum()


def steepest_descent(
    *,
    norm: str | float | Norm,
    learning_rate: float | Schedule = 0.1,
    normalize: bool = True,
    relative: bool = False,
) -> Optimizer:
    """Steepest descent in a norm N: θ − η D, where D maximises ⟨∇L(θ), D⟩ over N(D) ≤ 1.

    ℓ∞ gives sign descent, ℓ1 (greedy) coordinate descent, the spectral norm U V' of the gradient's singular vectors, ℓ2
    normalized gradient descent. Each parameter is stepped on separately, and so are those of each attention head.

    Parameters
    ----------
    norm : str, float or Norm
        "linf", "l1", "spectral", "nuclear", "frobenius", any p ≥ 1 of an entrywise norm, or any norm that provides
        ``steepest`` in JAX. For a vector, spectral and nuclear mean ℓ2.
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    normalize : bool
        Steps of length η in N, exact however small the gradient is; otherwise of η N*(∇L), and training stalls where
        the gradient underflows.
    relative : bool
        Whether the step is multiplied by N(θ). Steps cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number, the norm is unknown, or it does not provide ``steepest``.

    See Also
    --------
    attsvm.optimizers.mirror_descent, attsvm.optimizers.spectral_descent
    attsvm.torch.SignDescent : In PyTorch, for ℓ∞.

    References
    ----------
    Gunasekar, Lee, Soudry and Srebro (2018), *Characterizing Implicit Bias in Terms of Optimization Geometry*, section
    3, for linear models. What is known for attention: :func:`attsvm.predict_direction`.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.steepest_descent(norm="spectral", learning_rate=0.05)
    >>> descent.norm
    Spectral()
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    rule = Steepest(norm)
    of_factors = {"factored": of_each_head(INDUCED[rule.norm])} if rule.norm in INDUCED else {}
    return chain(
        *([Normalize("each")] if normalize else []),
        *([Relative("each")] if relative else []),
        LearningRate(learning_rate),
        rule,
        name="steepest_descent",
        arguments={"norm": rule.norm, "learning_rate": learning_rate, "normalize": normalize, "relative": relative},
        limits={**limits_of(rule.norm, "steepest descent"), **of_factors},
    )


OPTIMIZERS.register("steepest_descent", steepest_descent)
