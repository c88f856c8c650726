"""Gradient descent, plain and normalized, and its rule."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

from attsvm._utils.contractions import elementwise
from attsvm.norms import Lp
from attsvm.optimizers.chain import chain
from attsvm.optimizers.limit import euclidean
from attsvm.optimizers.optimizer import Optimizer, constant_step
from attsvm.optimizers.registry import OPTIMIZERS
from attsvm.optimizers.rule import ProportionalRule
from attsvm.optimizers.scales import Scales, Tree, subtree
from attsvm.optimizers.sizes import norm_of
from attsvm.optimizers.transformations import LearningRate, Normalize, Relative, Schedule

Array = jax.Array


@dataclass(frozen=True)
class Descent(ProportionalRule):
    """Subtract the gradient: θ⁺ = θ − g. Its norm is ℓ2.

    See Also
    --------
    attsvm.optimizers.gradient_descent, attsvm.optimizers.chain

    Examples
    --------
    >>> from attsvm.optimizers import Descent, LearningRate, chain
    >>> chain(LearningRate(0.1), Descent()).norm.name
    'frobenius'
    """

    @property
    def norm(self) -> Lp:
        return Lp(2.0)

    @property
    def state_degree(self) -> float:
        return 0.0

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], scales: Scales, value: Array
    ) -> tuple[Tree, Any]:
        """Return the step −g."""
        updates: Tree = {}
        for group in scales.groups:
            own = subtree(gradient, group.names)
            factor = -group.factor(own)
            updates |= {name: elementwise(jnp.multiply, factor, g) for name, g in own.items()}
        return updates, state

    def size_of_weights(self, names: Iterable[str], params: Tree, state: Any) -> Array:
        """Compute the ℓ2 norm of these parameters."""
        return norm_of(self.norm, subtree(params, names))


def gradient_descent(learning_rate: float | Schedule = 0.1, *, relative: bool = False) -> Optimizer:
    """Gradient descent: θ − η ∇L(θ).

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    relative : bool
        Whether the step is η‖θ‖ times the gradient.

    Returns
    -------
    Optimizer
        Where the gradient underflows to zero, training stops with status ``stalled``.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.

    See Also
    --------
    attsvm.optimizers.normalized_gradient_descent, attsvm.optimizers.polyak

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), Theorem 2; Tarzanagh, Li, Thrampoulidis and Oymak (2023), Theorem 4.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.gradient_descent(1.0)
    >>> attsvm.train(random_problem(4, 5, 3, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    return chain(
        *([Relative()] if relative else []),
        LearningRate(learning_rate),
        Descent(),
        name="gradient_descent",
        arguments={"learning_rate": learning_rate, "relative": relative},
        limits=euclidean("gradient descent"),
        gradient_step=constant_step(learning_rate, relative=relative),
    )


OPTIMIZERS.register("gradient_descent", gradient_descent)


def normalized_gradient_descent(
    learning_rate: float | Schedule = 0.1, *, scope: Literal["all", "each"] = "all", relative: bool = False
) -> Optimizer:
    """Normalized gradient descent: θ − η ∇L(θ)/‖∇L(θ)‖.

    Exact however small the gradient is: steps continue where the loss is below 1e-300.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    scope : {"all", "each"}
        One norm over all parameters, those of all attention heads together, or one for each of each head.
    relative : bool
        Whether the step is η‖θ‖ long, the norm over the same scope. Steps cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number, or the scope is unknown.

    See Also
    --------
    attsvm.optimizers.gradient_descent, attsvm.optimizers.polyak

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 5.

    Examples
    --------
    >>> import attsvm
    >>> from attsvm.datasets import random_problem
    >>> descent = attsvm.optimizers.normalized_gradient_descent(0.1)
    >>> attsvm.train(random_problem(3, 4, 5, 0), optimizer=descent, steps=100).status.value
    'finished'
    """
    return chain(
        Normalize(scope),
        *([Relative(scope)] if relative else []),
        LearningRate(learning_rate),
        Descent(),
        name="normalized_gradient_descent",
        arguments={"learning_rate": learning_rate, "scope": scope, "relative": relative},
        limits=euclidean("normalized gradient descent", scope),
        gradient_step=constant_step(learning_rate, relative=relative, normalized=True),
    )


OPTIMIZERS.register("normalized_gradient_descent", normalized_gradient_descent)
