# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""Optimisers as gradient transformations in optax's sense, which know the scale that was taken out of the gradient.

Training passes two extra arguments to ``update``: ``log_scale``, the logarithm of the factor exp(c) taken out of each
parameter's gradient (a dict like the parameters), and ``value``, the loss. The optimisers of this module use them, so
that a normalised step is exact where the gradient itself underflows; any other optax optimiser gets gradient·exp(c).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.training.contractions import over_entries, settle

Array = jax.Array
Tree = dict[str, Array]
Schedule = Callable[[Array], Array]


class Rule(Protocol):
    """How an optimiser steps, apart from the numbers it steps by: equal rules share their compiled training.

    As everywhere in the engine the trailing axis of each array holds the trials; numbers are shared by them.
    """

    @property
    def scale_free(self) -> bool:
        """Whether steps do not depend on the gradient's size, so that one too small for a float is no zero."""
        ...

    def init(self, params: Tree) -> Any:
        """State before the first step."""
        ...

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, Any]:
        """Updates and next state.

        The true gradient is gradient·exp(log_scale); the largest entry of each parameter's gradient is 1 or 0.
        """
        ...


class Optimizer(optax.GradientTransformationExtraArgs):
    """An optax transformation that takes ``log_scale`` and ``value``.

    Attributes
    ----------
    name : str
    norm : Norm or None
        The norm whose Att-SVM theory ties this optimiser to; None where it is not known.
    rule : Rule
        The method, hashable.
    numbers : dict of str to float
        Learning rate and the like: they may change without recompiling anything.
    arguments : dict or None
        What its factory was called with, where that can be written to a file (a schedule cannot).
    """

    name: str
    norm: Norm | None
    rule: Rule
    numbers: dict[str, float]
    arguments: dict[str, Any] | None

    def __new__(
        cls, rule: Rule, name: str, norm: Norm | None, numbers: dict[str, float], **options: Any
    ) -> "Optimizer":
        def update(
            updates: Tree,
            state: Any,
            params: Tree | None = None,
            *,
            log_scale: Tree | None = None,
            value: Any = np.nan,
            **extra: Any,
        ) -> tuple[Tree, Any]:
            scales = jax.tree.map(lambda _: jnp.zeros(()), updates) if log_scale is None else log_scale
            gradient, state, params, scales, value = jax.tree.map(
                lambda x: jnp.expand_dims(x, -1), (updates, state, params or {}, scales, value)
            )
            gradient, scales, _ = rescaled(gradient, scales)
            given = {name: jnp.asarray(number) for name, number in numbers.items()}
            return one_trial(rule.update(gradient, state, params, given, scales, value))

        def init(params: Tree) -> Any:
            return one_trial(rule.init(jax.tree.map(lambda x: jnp.expand_dims(x, -1), params)))

        def one_trial(tree: Any) -> Any:
            return jax.tree.map(lambda x: jnp.squeeze(x, -1), tree)

        optimizer = super().__new__(cls, init, update)
        optimizer.rule, optimizer.name, optimizer.norm, optimizer.numbers = rule, name, norm, numbers
        optimizer.arguments = {**numbers, **options} if "learning_rate" in numbers else None
        return optimizer

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={number:g}' for name, number in self.numbers.items())})"


class Taken(NamedTuple):
    """Number of steps taken."""

    steps: Array


# without a schedule there is nothing to remember
StepState = Taken | tuple[()]


@dataclass(frozen=True)
class _Step:
    """The length of a step: a number, or a function of the number of steps taken."""

    schedule: Schedule | None

    def init(self, params: Tree) -> StepState:
        if self.schedule is None:
            return ()
        return Taken(jnp.zeros(next(iter(params.values())).shape[-1], jnp.int32))

    def length(self, state: StepState, numbers: Mapping[str, Any]) -> tuple[Array, StepState]:
        if self.schedule is None or not isinstance(state, Taken):
            return numbers["learning_rate"], state
        return over_trials(self.schedule)(state.steps), Taken(state.steps + 1)


@dataclass(frozen=True)
class GradientDescent:
    """θ − η ∇L, or a step of η‖θ‖ relative to the weights."""

    step: _Step
    relative: bool
    scale_free: bool = False

    def init(self, params: Tree) -> StepState:
        return self.step.init(params)

    def update(
        self, gradient: Tree, state: StepState, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, StepState]:
        length, state = self.step.length(state, numbers)
        if self.relative:
            length = length * _norm(params)
        return {name: -length * jnp.exp(log_scale[name]) * g for name, g in gradient.items()}, state


@dataclass(frozen=True)
class NormalizedGradientDescent:
    """θ − η ∇L/‖∇L‖, one norm over all parameters or one for each."""

    step: _Step
    relative: bool
    scope: Literal["all", "each"]
    scale_free: bool = True

    def init(self, params: Tree) -> StepState:
        return self.step.init(params)

    def update(
        self, gradient: Tree, state: StepState, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, StepState]:
        length, state = self.step.length(state, numbers)
        updates: Tree = {}
        for names in [[name] for name in gradient] if self.scope == "each" else [list(gradient)]:
            group = aligned({name: gradient[name] for name in names}, log_scale)
            size = settle(jnp.sqrt(_sum_of_squares(group)))
            step = length * _norm({name: params[name] for name in names}) if self.relative else length
            # a zero gradient has no direction and moves nothing
            factor = jnp.where(size > 0, -step / jnp.where(size > 0, size, 1.0), 0.0)
            updates |= {name: factor * g for name, g in group.items()}
        return updates, state


def rescaled(gradient: Tree, log_scale: Tree) -> tuple[Tree, Tree, Tree]:
    """Each parameter's gradient over its largest entry, the scale with that taken in, and the largest entries.

    Squares of what is returned neither overflow nor underflow.
    """
    largest = {name: over_entries(jnp.maximum, jnp.abs(g)) for name, g in gradient.items()}
    gradient = {name: g / jnp.maximum(largest[name], jnp.finfo(g.dtype).tiny) for name, g in gradient.items()}
    return gradient, {name: c + jnp.log(largest[name]) for name, c in log_scale.items()}, largest


def aligned(gradient: Tree, log_scale: Tree) -> Tree:
    """The gradients of several parameters with one common factor taken out, that of the largest."""
    if len(gradient) == 1:
        return gradient
    largest = reduce(jnp.maximum, [log_scale[name] for name in gradient])
    largest = jnp.where(jnp.isneginf(largest), 0.0, largest)
    return {name: g * jnp.exp(log_scale[name] - largest) for name, g in gradient.items()}


def gradient_descent(learning_rate: float | Schedule, *, relative: bool = False) -> Optimizer:
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
        A gradient that underflows is an honest zero: training says ``stalled``.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number.

    References
    ----------
    Tarzanagh, Li, Zhang and Oymak (2023), Theorem 2; Tarzanagh, Li, Thrampoulidis and Oymak (2023), Theorem 4.
    """
    step, numbers = _read(learning_rate)
    return Optimizer(GradientDescent(step, relative), "gradient_descent", Norm("lp", 2.0), numbers, relative=relative)


def normalized_gradient_descent(
    learning_rate: float | Schedule = 0.1, *, scope: Literal["all", "each"] = "all", relative: bool = False
) -> Optimizer:
    """Normalised gradient descent: θ − η ∇L(θ)/‖∇L(θ)‖.

    Exact however small the gradient is: steps go on where the loss is below 1e-300.

    Parameters
    ----------
    learning_rate : float or callable
        η, or a schedule: a JAX function of the number of steps taken.
    scope : {"all", "each"}
        One norm over all parameters, or one for each.
    relative : bool
        Whether the step is η‖θ‖ long, the norm over the same scope. It cannot leave θ = 0.

    Raises
    ------
    ProblemError
        If the learning rate is not a positive number, or the scope is unknown.

    References
    ----------
    Tarzanagh, Li, Thrampoulidis and Oymak (2023), *Transformers as Support Vector Machines*, section 5.
    """
    if scope not in ("all", "each"):
        raise ProblemError(f'scope: {scope!r} found, "all" or "each" wanted')
    step, numbers = _read(learning_rate)
    rule = NormalizedGradientDescent(step, relative, scope)
    options = {"scope": scope, "relative": relative}
    return Optimizer(rule, "normalized_gradient_descent", Norm("lp", 2.0), numbers, **options)


FACTORIES: dict[str, Callable[..., Optimizer]] = {
    "gradient_descent": gradient_descent,
    "normalized_gradient_descent": normalized_gradient_descent,
}


def _read(learning_rate: float | Schedule) -> tuple[_Step, dict[str, float]]:
    if callable(learning_rate):
        return _Step(learning_rate), {}
    if not (np.ndim(learning_rate) == 0 and np.isfinite(learning_rate) and learning_rate > 0):
        raise ProblemError(f"learning_rate: {learning_rate!r} found, a positive number or a schedule wanted")
    return _Step(None), {"learning_rate": float(learning_rate)}


def over_trials(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one trial as one of all, the trials along the trailing axis of each argument and result."""

    def of_all(*arguments: Any) -> Any:
        num_trials = jax.tree.leaves(arguments)[0].shape[-1]
        if num_trials > 1:
            return jax.vmap(function, -1, -1)(*arguments)
        result = function(*jax.tree.map(lambda x: jnp.squeeze(x, -1), arguments))
        return jax.tree.map(lambda x: jnp.expand_dims(x, -1), result)

    return of_all


def _norm(tree: Tree) -> Array:
    """ℓ2 norm over all entries, relative to the largest, so that squares neither overflow nor underflow."""
    largest = reduce(jnp.maximum, [over_entries(jnp.maximum, jnp.abs(x)) for x in tree.values()])
    scale = jnp.where(largest > 0, largest, 1.0)
    return scale * jnp.sqrt(_sum_of_squares({name: x / scale for name, x in tree.items()}))


def _sum_of_squares(tree: Tree) -> Array:
    return reduce(jnp.add, [over_entries(jnp.add, x * x) for x in tree.values()])
