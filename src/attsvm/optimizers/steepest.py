"""Steepest descent in a norm: sign, coordinate, spectral descent and others, and its rule."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from attsvm._utils.keywords import suggests
from attsvm.errors import ProblemError
from attsvm.norms import Norm, checked, parse_norm
from attsvm.optimizers.hyperparameters import check_number, is_traced
from attsvm.optimizers.optimizer import Optimizer, chain
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import DecoupledWeightDecay, Moves, Numbers, Rule
from attsvm.optimizers.scaled_gradient import Scale, ScaledGradient
from attsvm.optimizers.sizes import Tree, dual_in_jax, size_of, steepest
from attsvm.optimizers.steps import Steps
from attsvm.optimizers.transformations import LearningRate, Normalize, Relative
from attsvm.optimizers.unit_steps import UNKNOWN_LENGTH, GradientLength, Schedule, UnitSteps

Array = jax.Array


@dataclass(frozen=True, init=False)
class Steepest(Rule):
    """Subtract N*(g) D from each parameter, where D maximises ⟨g, D⟩ over N(D) ≤ 1.

    Parameters
    ----------
    norm : str, float or Norm
        N; it provides ``steepest``, which JAX can trace.

    Raises
    ------
    ProblemError
        If the norm is unknown, or does not provide ``steepest``.
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

    def unit_steps(self, gradient: GradientLength = UNKNOWN_LENGTH) -> UnitSteps | None:
        """For gradients of which each has the dual norm 1."""
        if gradient.together or gradient.unit != dual_in_jax(self.norm):
            return None
        return UnitSteps(self.norm, False, gradient.rate)

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """−N*(g) D of each parameter."""
        moves: Tree = {}
        for scale, own in updates.parts:
            # each parameter steps by itself, and needs a scale on which its own entries are near 1
            singles = ScaledGradient(own, (scale,))
            if len(own) > 1 or (len(updates.gradient) > 1 and scale.unit is None):
                singles = (singles if scale.unit is None else singles.resolved()).separated()
            for single, one in singles.parts:
                (name,) = single.names
                # −η N*(g) D, with D of unit length
                moves[name] = -self._length(single, one) * steepest(self.norm, one[name])
        return moves, state

    def _length(self, scale: Scale, gradient: Tree) -> Array | float:
        """N* of the gradient with its scale."""
        dual = dual_in_jax(self.norm)
        # the gradient over its own dual norm: N* is 1, whatever its scale
        if scale.unit == dual and scale.size is None:
            return 1.0 if scale.length is None else scale.length
        size = size_of(dual, gradient)
        # divided by another norm
        if scale.unit is not None:
            return scale.factor(gradient) * size
        # not divided: the size of the gradient counts, and may underflow
        return (size if scale.length is None else scale.length * size) * jnp.exp(scale.log)


@suggests
def steepest_descent(
    learning_rate: float | Schedule = 0.1,
    *,
    norm: str | float | Norm,
    normalize: bool = True,
    relative: bool = False,
    weight_decay: float = 0.0,
) -> Optimizer:
    """Steepest descent in a norm N: θ − η D, where D maximises ⟨∇L(θ), D⟩ over N(D) ≤ 1.

    ℓ∞ gives sign descent, ℓ1 (greedy) coordinate descent, the spectral norm U V' of the gradient's singular vectors, ℓ2
    normalised gradient descent. Each parameter is stepped on separately, and so are those of each attention head.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    norm : str, float or Norm
        "linf", "l1", "spectral", "nuclear", "frobenius", any p ≥ 1 of an entrywise norm, or any norm that provides
        ``steepest`` in JAX. For a vector, spectral and nuclear mean ℓ2.
    normalize : bool
        Steps of length η in N, exact however small the gradient is; otherwise of η N*(∇L), and training stalls where
        the gradient underflows.
    relative : bool
        Whether the step is multiplied by N(θ). Steps cannot leave θ = 0.
    weight_decay : float
        λ ≥ 0: θ also shrinks by the factor 1 − ηλ. Then N(θ) stays at most 1/λ, and the weights converge to a point of
        that ball (:func:`attsvm.theory.constrained_limit`). Not with ``relative``.

    Raises
    ------
    ProblemError
        If the learning rate is not a number >= 0, the norm is unknown, or it does not provide ``steepest``.

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
    decay = check_number("weight_decay", weight_decay, "a number >= 0", lambda x: x >= 0)
    decays = is_traced(decay) or decay > 0
    if decays and relative:
        raise ProblemError("weight_decay: expected 0 with steps relative to the weights")
    return chain(
        *([Normalize("each", dual_in_jax(rule.norm))] if normalize else []),
        *([Relative("each", rule.norm)] if relative else []),
        LearningRate(learning_rate),
        DecoupledWeightDecay(rule, decay) if decays else rule,
        name="steepest_descent",
        arguments={
            "norm": rule.norm,
            "learning_rate": learning_rate,
            "normalize": normalize,
            "relative": relative,
            "weight_decay": decay,
        },
        steps=Steps("steepest", rule.norm, "step" if normalize else "no", scope="heads"),
    )


OPTIMIZERS.register("steepest_descent", steepest_descent)
