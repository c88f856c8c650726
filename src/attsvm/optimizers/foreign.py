# ruff: noqa: D102 (methods are documented in the protocol Rule)
"""Optimisers that know nothing of scales: any of optax's."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import optax

from attsvm.errors import ProblemError
from attsvm.optimizers.optimizer import Optimizer, Rule
from attsvm.optimizers.scales import Array, Tree, over_trials


@dataclass(frozen=True)
class Foreign:
    """An optimiser that does not know of scales: it gets the gradient itself, gradient·exp(log_scale)."""

    transformation: optax.GradientTransformation

    @property
    def scale_free(self) -> bool:
        return "log_scale" in inspect.signature(self.transformation.update).parameters

    def init(self, params: Tree) -> Any:
        return over_trials(self.transformation.init)(params)

    def update(
        self, gradient: Tree, state: Any, params: Tree, numbers: Mapping[str, Any], log_scale: Tree, value: Array
    ) -> tuple[Tree, Any]:
        def of_trial(gradient: Tree, state: Any, params: Tree, log_scale: Tree, value: Array) -> tuple[Tree, Any]:
            extra: dict[str, Any] = {}
            if isinstance(self.transformation, optax.GradientTransformationExtraArgs):
                extra["value"] = value
            if self.scale_free:
                extra["log_scale"] = log_scale
            else:
                gradient = {name: g * jnp.exp(log_scale[name]) for name, g in gradient.items()}
                extra |= {"grad": gradient} if extra else {}
            return self.transformation.update(gradient, state, params, **extra)

        return over_trials(of_trial)(gradient, state, params, log_scale, value)


def rule_of(optimizer: optax.GradientTransformation) -> tuple[Rule, dict[str, float]]:
    """The method, which the compiled program depends on, and the numbers, which it does not.

    Raises
    ------
    ProblemError
        If it is no optimiser.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer.rule, optimizer.numbers
    if not isinstance(optimizer, optax.GradientTransformation):
        raise ProblemError(f"optimizer: {optimizer!r} found, one of attsvm.optimizers or an optax optimiser wanted")
    return Foreign(optimizer), {}
