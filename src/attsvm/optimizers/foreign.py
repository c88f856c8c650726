"""Optimizers of optax as rules."""

import inspect
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from attsvm.errors import ProblemError
from attsvm.optimizers.optax_names import steps_of_optax
from attsvm.optimizers.rule import NO_VALUE, Moves, Numbers, Rule
from attsvm.optimizers.scaled_gradient import ScaledGradient
from attsvm.optimizers.sizes import Tree, map_trials
from attsvm.optimizers.steps import Steps

Array = jax.Array


@dataclass(frozen=True)
class Foreign(Rule):
    """An optax optimiser, which gets the gradient itself: gradient·exp(scale).

    If its ``update`` has a parameter ``log_scale``, it gets the scaled gradient and the logarithms of the scales.
    """

    transformation: optax.GradientTransformation

    @property
    def steps(self) -> Steps:
        return steps_of_optax(self.transformation)

    @property
    def scale_free(self) -> bool:
        """Whether it uses the scales."""
        return "log_scale" in inspect.signature(self.transformation.update).parameters

    def init(self, params: Tree) -> Any:
        """Make its own state, for each trial."""
        return map_trials(lambda one: _without_keys(self.transformation.init(one)))(params)

    def update(self, updates: ScaledGradient, state: Any, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """Make its own update, for each trial."""

        def of_trial(gradient: Tree, state: Any, params: Tree, log_scale: Tree, value: Array) -> tuple[Tree, Any]:
            # optax names the arguments that an update may take beyond gradient, state and parameters
            extra: dict[str, Any] = {}
            if isinstance(self.transformation, optax.GradientTransformationExtraArgs) and value is not None:
                extra["value"] = value
            if self.scale_free:
                extra["log_scale"] = log_scale
            else:
                # the gradient itself, which underflows far in the limit
                gradient = {name: g * jnp.exp(log_scale[name]) for name, g in gradient.items()}
                extra |= {"grad": gradient} if extra else {}
            try:
                updates, state = self.transformation.update(gradient, _with_keys(state), params, **extra)
            except TypeError as error:
                if "required keyword-only argument" not in str(error):
                    raise
                # the message of Python names the arguments that are missing
                needs = ", ".join(re.findall("'(.+?)'", str(error)))
                if value is None and needs == "value":
                    raise ProblemError(NO_VALUE) from None
                raise ProblemError(
                    "optimizer: expected one whose update needs only the gradient and the loss, got one that needs "
                    f"{needs}"
                ) from None
            return updates, _without_keys(state)

        # the norms and lengths of earlier transformations are part of the logarithms
        logs = updates.resolved().logs
        moves, state = map_trials(of_trial)(updates.gradient, state, params or None, logs, value)
        return moves, state


def as_transformation(optimizer: object) -> object:
    """An ``optax.MultiSteps``, which is none by its class, as a transformation; anything else as it is."""
    if isinstance(optimizer, optax.MultiSteps):
        # equal for the same object, so that its trainings share their compiled steps
        return optax.GradientTransformationExtraArgs(optimizer.init, optimizer.update)
    return optimizer


@partial(jax.tree_util.register_dataclass, data_fields=["numbers"], meta_fields=["kind"])
@dataclass(frozen=True)
class _Key:
    """A key of random numbers, as integers: NumPy, and with it a saved run, has no array of keys."""

    numbers: Array
    kind: Any


def _without_keys(state: Any) -> Any:
    def plain(x: Any) -> Any:
        is_key = isinstance(x, Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return _Key(jax.random.key_data(x), jax.random.key_impl(x)) if is_key else x

    return jax.tree.map(plain, state)


def _with_keys(state: Any) -> Any:
    def typed(x: Any) -> Any:
        return jax.random.wrap_key_data(x.numbers, impl=x.kind) if isinstance(x, _Key) else x

    return jax.tree.map(typed, state, is_leaf=lambda x: isinstance(x, _Key))
