"""Chains of transformations of the gradient and a rule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from attsvm.norms import Norm
from attsvm.optimizers.rule import Moves, Numbers, Rule, SizeOfWeights, Transformation
from attsvm.optimizers.sizes import Tree
from attsvm.optimizers.transformations import LearningRate
from attsvm.optimizers.unit_steps import UNKNOWN_LENGTH, GradientLength, Schedule, UnitSteps

Array = jax.Array


class ChainState(NamedTuple):
    """States of the transformations, and of the rule."""

    parts: tuple[Any, ...]
    rule: Any


@dataclass(frozen=True)
class Chain(Rule):
    """Transformations, one after the other, and a rule."""

    parts: tuple[Transformation, ...]
    rule: Rule

    @property
    def numbers(self) -> Mapping[str, float]:
        return {name: number for part in (*self.parts, self.rule) for name, number in part.numbers.items()}

    @property
    def norm(self) -> Norm | None:
        return self.rule.norm

    @property
    def scale_free(self) -> bool:
        """Whether the gradient is normalised, or the rule does not depend on its size."""
        return any(part.scale_free for part in (*self.parts, self.rule))

    @property
    def on_each_head(self) -> bool:
        return any(part.on_each_head for part in (*self.parts, self.rule))

    @property
    def reads_excess(self) -> bool:
        return any(part.reads_excess for part in (*self.parts, self.rule))

    @property
    def rate(self) -> float | Schedule | None:
        """The only learning rate among the transformations; None if it is 0, because such steps lead nowhere."""
        rates = [part.rate for part in self.parts if isinstance(part, LearningRate)]
        return (rates[0] or None) if len(rates) == 1 else None

    def unit_steps(self, gradient: GradientLength = UNKNOWN_LENGTH) -> UnitSteps | None:
        """The steps of the rule, for what the transformations make of the gradient."""
        # the length of the gradient, followed through the transformations
        for part in self.parts:
            changed = part.length_of(gradient)
            if changed is None:
                return None
            gradient = changed
        return self.rule.unit_steps(gradient)

    @property
    def state_degree(self) -> float | None:
        """The power of the size of the weights that the steps are multiplied by, if nothing else sets their length."""
        # two such factors, or a gradient of any size, leave the growth of the weights unknown
        powers = [part.power for part in self.parts if isinstance(part, SizeOfWeights)]
        return powers[0] if len(powers) == 1 and self.scale_free else None

    def init(self, params: Tree) -> ChainState:
        return ChainState(tuple(part.init(params) for part in self.parts), self.rule.init(params))

    def update(self, updates: Any, state: ChainState, params: Tree, *, numbers: Numbers, value: Array) -> Moves:
        """Apply the transformations in their order, then the rule."""
        # each transformation gets what the one before it made of the gradient
        states = []
        for part, own in zip(self.parts, state.parts, strict=True):
            updates, own = part.update(updates, own, params, numbers=numbers, value=value)
            states.append(own)
        # the rule makes updates of it, which are added to the parameters
        updates, of_rule = self.rule.update(updates, state.rule, params, numbers=numbers, value=value)
        return updates, ChainState(tuple(states), of_rule)

    def following(self, state: ChainState, params: Tree, rounding: Mapping[str, float]) -> ChainState:
        return state._replace(rule=self.rule.following(state.rule, params, rounding))

    def rescaled(self, state: ChainState, power: Array) -> ChainState:
        """Multiply the state of the rule, which is homogeneous in the weights."""
        factor = jnp.exp2((self.state_degree or 0.0) * power)

        def scaled(x: Array) -> Array:
            # integers count steps, or are keys of random numbers
            return x * factor.astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else x

        return state._replace(rule=jax.tree.map(scaled, state.rule))
