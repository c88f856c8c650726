# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""What an optimiser is: a rule, the numbers it steps by, and optax's two functions around them.

Training passes two extra arguments to ``update``: ``log_scale``, the logarithm of the factor exp(c) taken out of each
parameter's gradient, and ``value``, the loss. The optimisers of this package use them, so that a normalised step is
exact where the gradient itself underflows; any other optax optimiser gets gradient·exp(c).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attsvm.errors import ProblemError
from attsvm.norms import Norm
from attsvm.optimizers.scales import Array, Tree, over_trials, rescaled

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

        The true gradient is gradient·exp(log_scale); the largest entry over the parameters that share a log_scale is 1,
        or 0 where they all are zero, and then the log_scale is −inf.
        """
        ...


class Optimizer(optax.GradientTransformationExtraArgs):
    """An optax transformation that takes ``log_scale`` and ``value``, of any tree of parameters.

    Attributes
    ----------
    name : str
    norm : Norm or None
        The norm whose Att-SVM theory ties this optimiser to; None where it is not known.
    rule : Rule
        The method, hashable.
    numbers : dict of str to float
        Learning rate and the like: they may change without recompiling anything.
    arguments : dict
        What its factory was called with.
    """

    name: str
    norm: Norm | None
    rule: Rule
    numbers: dict[str, float]
    arguments: dict[str, Any]

    def __new__(
        cls, rule: Rule, name: str, norm: Norm | None, numbers: dict[str, float], arguments: dict[str, Any]
    ) -> "Optimizer":
        def update(
            updates: Any,
            state: Any,
            params: Any = None,
            *,
            log_scale: Any = None,
            value: Any = np.nan,
            **extra: Any,
        ) -> tuple[Any, Any]:
            gradient = _named(updates)
            scales = (
                _named(log_scale) if log_scale is not None else {k: jnp.zeros(1, g.dtype) for k, g in gradient.items()}
            )
            gradient, scales, _ = rescaled(gradient, scales)
            dtype = jnp.result_type(*gradient.values())
            given = {name: jnp.asarray(number, dtype) for name, number in numbers.items()}
            moves, state = rule.update(
                gradient,
                _last(state),
                _Unknown() if params is None else _named(params),
                given,
                scales,
                jnp.asarray(value, dtype)[..., None],
            )
            structure = jax.tree.structure(updates)
            return jax.tree.unflatten(structure, list(_one_trial(moves).values())), _one_trial(state)

        def init(params: Any) -> Any:
            return _one_trial(rule.init(_named(params)))

        optimizer = super().__new__(cls, init, update)
        optimizer.rule, optimizer.name, optimizer.norm, optimizer.numbers = rule, name, norm, numbers
        optimizer.arguments = arguments
        return optimizer

    def __repr__(self) -> str:
        shown = (
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}"
            for name, value in self.arguments.items()
        )
        return f"{self.name}({', '.join(shown)})"


class _Unknown(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise ProblemError("params: not passed to update; this optimiser needs them")


def _named(tree: Any) -> Tree:
    """The leaves of any tree as the dictionary that rules work on, with a trailing axis of one trial."""
    leaves = jax.tree.leaves(tree)
    return {f"{i:06}": jnp.asarray(leaf)[..., None] for i, leaf in enumerate(leaves)}


def _last(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.expand_dims(x, -1), tree)


def _one_trial(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.squeeze(x, -1), tree)


class Taken(NamedTuple):
    """Number of steps taken."""

    steps: Array


# without a schedule there is nothing to remember
StepState = Taken | tuple[()]


@dataclass(frozen=True)
class Step:
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


def read_learning_rate(learning_rate: float | Schedule) -> tuple[Step, dict[str, float]]:
    """A step, and the numbers it goes by.

    Raises
    ------
    ProblemError
        If the learning rate is neither a positive number nor a schedule.
    """
    if callable(learning_rate):
        return Step(learning_rate), {}
    return Step(None), {"learning_rate": read_number("learning_rate", learning_rate, "a positive number or a schedule")}


def read_number(name: str, value: Any, wanted: str, fits: Callable[[float], bool] = lambda x: 0 < x < np.inf) -> float:
    """A number that fits; else a :class:`ProblemError`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not fits(number):
        raise ProblemError(f"{name}: {value!r} found, {wanted} wanted")
    return number


def read_scope(scope: str) -> str:
    """A scope, "all" or "each"; else a :class:`ProblemError`."""
    if scope not in ("all", "each"):
        raise ProblemError(f'scope: {scope!r} found, "all" or "each" wanted')
    return scope
