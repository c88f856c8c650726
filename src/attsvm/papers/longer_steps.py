"""Normalised steps that are longer for some parameters: figures in which one radius outgrows another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from attsvm.optimizers import Optimizer, chain
from attsvm.optimizers.gradient import Descent
from attsvm.optimizers.rule import Transformation
from attsvm.optimizers.scales import Scaled, Scales, Tree
from attsvm.optimizers.transformations import LearningRate, Normalize


@dataclass(frozen=True)
class LongerSteps(Transformation):
    """Multiply step k of one parameter by (1 + k/50)^power; it must not share its scale with another one."""

    name: str
    power: float = field(compare=False)

    @property
    def numbers(self) -> Mapping[str, float]:
        return {"power": self.power}

    def init(self, params: Tree) -> Any:
        """The number of steps taken, of each trial."""
        return jnp.zeros(params[self.name].shape[-1])

    def update(
        self, updates: Scaled, state: Any, params: Tree, *, numbers: Mapping[str, Any], value: Any
    ) -> tuple[Scaled, Any]:
        """Multiply the scale of the parameter."""
        factor = (1 + state / 50) ** numbers["power"]
        groups = (group.times(factor) if self.name in group.names else group for group in updates.scales.groups)
        return Scaled(updates.gradient, Scales(tuple(groups))), state + 1


def longer_steps(length: float, name: str, power: float) -> Optimizer:
    """Descent whose step k has a length for each parameter, times (1 + k/50)^power for the one of this name."""
    longer = LongerSteps(name, power)
    return chain(Normalize("each"), LearningRate(length), longer, Descent(), name="longer_steps")
