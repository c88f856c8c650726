"""Normalised steps that are longer for some parameters: figures in which one radius outgrows another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

from attsvm.optimizers import Descent, LearningRate, Normalize, Optimizer, Scales, Transformation, chain
from attsvm.optimizers.chain import Context
from attsvm.optimizers.scales import Tree


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

    def apply(self, gradient: Tree, scales: Scales, state: Any, context: Context) -> tuple[Tree, Scales, Any]:
        """Multiply the scale of the parameter."""
        factor = (1 + state / 50) ** context.numbers["power"]
        groups = tuple(group.times(factor) if self.name in group.names else group for group in scales.groups)
        return gradient, Scales(groups), state + 1


def longer_steps(length: float, name: str, power: float) -> Optimizer:
    """Descent whose step k has a length for each parameter, times (1 + k/50)^power for the one of this name."""
    longer = LongerSteps(name, power)
    return chain(Normalize("each"), LearningRate(length), longer, Descent(), name="longer_steps")
